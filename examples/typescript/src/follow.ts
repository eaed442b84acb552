import { setTimeout } from "node:timers/promises";
import { type Client, Code, ConnectError } from "@connectrpc/connect";
import type { Run } from "./gen/bridle/v1/run_pb.js";
import type { RunEvent } from "./gen/bridle/v1/run_event_pb.js";
import type { RunService } from "./gen/bridle/v1/run_service_pb.js";

// Connect calls a connection that breaks in mid-stream CANCELED or ABORTED.
const lost = [Code.Unavailable, Code.Canceled, Code.Aborted];

/** Shows a run's events after a cursor until the run stops, through lost connections. */
export async function follow(
  runs: Client<typeof RunService>,
  runId: string,
  afterSeq: bigint,
  show: (event: RunEvent) => void,
): Promise<Run> {
  for (;;) {
    try {
      for await (const { response } of runs.streamRun({ runId, afterSeq })) {
        if (response.case !== "event") continue; // a heartbeat
        const { seq, event } = response.value;
        afterSeq = seq;
        if (event.case === "runStopped") return event.value.run!;
        show(response.value);
      }
    } catch (error) {
      if (!lost.includes(ConnectError.from(error).code)) throw error;
    }
    await setTimeout(500);
  }
}
