"""Tool servers between protobuf and the domain."""

from common.pb.bridle.v1 import tool_pb2
from services.messages.convert import timestamp
from services.toolservers.model import Grpc, McpHttp, McpStdio, Reach, Secrets, ToolServer


def reach_from_pb(server: tool_pb2.ToolServer) -> Reach:
    """How a checked server is reached."""
    match server.WhichOneof("connection"):
        case "grpc":
            grpc = server.grpc
            return Grpc(grpc.target, grpc.ca_pem, grpc.plaintext, grpc.certificate_pem)
        case "mcp_stdio":
            return McpStdio(tuple(server.mcp_stdio.command))
        case _:
            return McpHttp(server.mcp_http.url)


def secrets_from_pb(server: tool_pb2.ToolServer) -> Secrets:
    """What is to be sealed of a checked server."""
    match server.WhichOneof("connection"):
        case "grpc":
            return Secrets(key_pem=server.grpc.key_pem)
        case "mcp_stdio":
            return Secrets(dict(server.mcp_stdio.env))
        case _:
            return Secrets(dict(server.mcp_http.headers))


def server_to_pb(server: ToolServer) -> tool_pb2.ToolServer:
    """A stored server, without its secrets."""
    answer = tool_pb2.ToolServer(name=server.name)
    match server.reach:
        case Grpc(target=target, ca_pem=ca, plaintext=plaintext, certificate_pem=certificate):
            answer.grpc.target, answer.grpc.plaintext = target, plaintext
            answer.grpc.ca_pem, answer.grpc.certificate_pem = ca, certificate
        case McpStdio(command=command):
            answer.mcp_stdio.command.extend(command)
        case McpHttp(url=url):
            answer.mcp_http.url = url
    if server.synced_at is not None:
        answer.sync_time.CopyFrom(timestamp(server.synced_at))
    return answer
