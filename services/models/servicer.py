"""ModelService: which models there are."""

from typing import Any

from common.pb.bridle.v1 import model_pb2, model_service_pb2, model_service_pb2_grpc
from services.models.demo import MODELS

# The demo model has no window of its own; this is what its agents plan with.
_CONTEXT_WINDOW = 128_000


class ModelServicer(model_service_pb2_grpc.ModelServiceServicer):
    """The built-in models."""

    async def ListModels(
        self, request: model_service_pb2.ListModelsRequest, context: Any
    ) -> model_service_pb2.ListModelsResponse:
        """All models; there are too few of them for a second page."""
        models = [
            model_pb2.Model(
                handle=f"demo/{name}",
                provider="demo",
                name=name,
                context_window=_CONTEXT_WINDOW,
                supports_tools=True,
            )
            for name in sorted(MODELS)
            if request.provider in ("", "demo")
        ]
        return model_service_pb2.ListModelsResponse(models=models)
