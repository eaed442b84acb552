"""Streams a run and cancels it at Ctrl-C: PYTHONPATH=gen python main.py [address] [text]"""

import asyncio
import signal
import sys

import grpc
from bridle.v1.agent_pb2 import Agent
from bridle.v1.agent_service_pb2 import CreateAgentRequest
from bridle.v1.agent_service_pb2_grpc import AgentServiceStub
from bridle.v1.message_pb2 import InputMessage, Part, Text
from bridle.v1.run_event_pb2 import RunEvent
from bridle.v1.run_pb2 import Run
from bridle.v1.run_service_pb2 import CancelRunRequest, CreateRunRequest
from bridle.v1.run_service_pb2_grpc import RunServiceStub
from follow import follow


async def main(address: str = "127.0.0.1:50051", text: str = "count to 100") -> None:
    """Start a run of a new agent and follow it to its end."""
    async with grpc.aio.insecure_channel(address) as channel:
        agents, runs = AgentServiceStub(channel), RunServiceStub(channel)
        agent = await agents.CreateAgent(CreateAgentRequest(agent=Agent(model="demo/slow")))
        message = InputMessage(parts=[Part(text=Text(text=text))])
        created = await runs.CreateRun(CreateRunRequest(agent_id=agent.id, messages=[message]))
        cancel_at_interrupt(runs, created.run.id)
        run = await follow(runs, created.run.id, created.after_seq, show)
        write(f"\n{Run.State.Name(run.state).removeprefix('STATE_')}\n")


def cancel_at_interrupt(runs: RunServiceStub, run_id: str) -> None:
    """Ctrl-C cancels the run; a second one ends the program."""
    loop = asyncio.get_running_loop()
    cancels = []

    def cancel() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        # The answer is not needed: the stream says when the run has stopped.
        cancels.append(runs.CancelRun(CancelRunRequest(run_id=run_id, reason="Ctrl-C")))

    loop.add_signal_handler(signal.SIGINT, cancel)


def show(event: RunEvent) -> None:
    """Print what the agent says, as it says it."""
    if event.HasField("text_delta"):
        write(event.text_delta.text)
    elif event.HasField("restarted"):
        write("\n[the server was restarted: the model begins its turn again]\n")


def write(text: str) -> None:
    """Without waiting for the end of the line."""
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
