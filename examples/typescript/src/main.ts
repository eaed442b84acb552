// Streams a run and cancels it at Ctrl-C: npm start -- [address] [text]
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { follow } from "./follow.js";
import { AgentService } from "./gen/bridle/v1/agent_service_pb.js";
import type { RunEvent } from "./gen/bridle/v1/run_event_pb.js";
import { Run_State } from "./gen/bridle/v1/run_pb.js";
import { RunService } from "./gen/bridle/v1/run_service_pb.js";

const [address = "127.0.0.1:50051", text = "count to 100"] = process.argv.slice(2);
const transport = createGrpcTransport({ baseUrl: `http://${address}` });
const agents = createClient(AgentService, transport);
const runs = createClient(RunService, transport);

const agent = await agents.createAgent({ agent: { model: "demo/slow" } });
const { run, afterSeq } = await runs.createRun({
  agentId: agent.id,
  messages: [{ parts: [{ part: { case: "text", value: { text } } }] }],
});
const runId = run!.id;

// Once: a second Ctrl-C ends the program. The answer is not needed: the stream says when the run has stopped.
process.once("SIGINT", () => {
  runs.cancelRun({ runId, reason: "Ctrl-C" }).catch(console.error);
});

function show({ event }: RunEvent): void {
  if (event.case === "textDelta") process.stdout.write(event.value.text);
  if (event.case === "restarted") console.log("\n[the server was restarted: the model begins its turn again]");
}

const stopped = await follow(runs, runId, afterSeq, show);
console.log(`\n${Run_State[stopped.state]}`);
process.exit(); // the transport would keep its idle connection, and so the program, for a while
