// Stop means stop, for streams in the background too: the twin of the cancellation test (seed 001).

import assert from "node:assert/strict";
import { test } from "node:test";

import { client, merged, stopReasons, user, withAgent } from "./helpers.mjs";

for (const model of ["openai/gpt-4o", "openai/gpt-5", "anthropic/claude-sonnet-4-5-20250929"]) {
  test(
    `${model}: a cancelled background stream can be read again`,
    withAgent(async (agent) => {
      await client.agents.update(agent.id, { model });
      const stream = await agent.open(user("think of a number and count slowly to 3000"), {
        stream_tokens: true,
        background: true,
      });
      let cancelled = null;
      const messages = await merged(stream, async (chunk) => {
        if (chunk.message_type === "assistant_message") cancelled ??= agent.cancel();
      });
      await cancelled;
      const runId = messages[0].run_id;
      assert.equal((await client.runs.retrieve(runId)).status, "cancelled");
      const again = await merged(await client.runs.messages.stream(runId, { starting_after: 0 }));
      assert.deepEqual(stopReasons(again), ["cancelled"]);
    }),
  );
}
