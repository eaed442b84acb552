#!/usr/bin/env sh
# Writes the client into gen/. Needs: pip install grpcio grpcio-tools googleapis-common-protos
set -eu
cd "$(dirname "$0")"
mkdir -p gen
"${PYTHON:-python3}" -m grpc_tools.protoc -I ../../proto -I ../../proto/third_party \
  --python_out=gen --pyi_out=gen --grpc_python_out=gen ../../proto/bridle/v1/*.proto
