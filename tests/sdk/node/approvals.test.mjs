// A person between the model and its tools: the twins of the human-in-the-loop tests (seed 002).

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";

import {
  ASK,
  ASK_AND_ECHO,
  ASK_THEN_BREAK,
  ASK_THEN_DRONE,
  CODE,
  ENDED,
  TELL,
  THANKS,
  approval,
  approve,
  client,
  deny,
  kinds,
  merged,
  returned,
  stopReasons,
  user,
  withAgent,
} from "./helpers.mjs";

const ANSWERS = { approve, deny, "client side": returned };

test(
  "an approval of nothing is refused",
  withAgent(async (agent) => {
    await assert.rejects(agent.answer(approve(randomUUID())), /No tool call is currently awaiting approval/);
  }),
);

test(
  "a message while a call waits is refused",
  withAgent(async (agent) => {
    const id = await agent.ask();
    await assert.rejects(agent.send(user("hi")), /Please approve or deny the pending request before continuing/);
    await agent.answer(approve(id));
  }),
);

test(
  "an approval of another call is refused",
  withAgent(async (agent) => {
    const id = await agent.ask();
    await assert.rejects(agent.answer(approve(randomUUID())), /Invalid tool call IDs/);
    await agent.answer(approve(id));
  }),
);

test(
  "a guarded call asks",
  withAgent(async (agent) => {
    const { messages } = await agent.send(user(ASK));
    const request = messages.at(-1);
    assert.equal(request.message_type, "approval_request_message");
    assert.equal(request.tool_call.name, "secret_code");
    assert.equal(request.tool_calls.length, 1);
    assert.ok(!("request_heartbeat" in JSON.parse(request.tool_call.arguments)));
    await agent.context();
    const { pending_approval: pending } = await agent.state({ include: ["agent.pending_approval"] });
    assert.equal(pending.tool_call.name, "secret_code");
    assert.equal(pending.tool_calls[0].tool_call_id, request.tool_call.tool_call_id);
    await agent.answer(approve(request.tool_call.tool_call_id));
    assert.equal((await agent.state({ include: ["agent.pending_approval"] })).pending_approval, null);
  }),
);

test(
  "a guarded call asks in a stream",
  withAgent(async (agent) => {
    const messages = await agent.stream(user(ASK), { stream_tokens: true });
    assert.deepEqual(kinds(messages).slice(-3), ["approval_request_message", ...ENDED]);
    assert.equal(messages.at(-3).tool_call.name, "secret_code");
    await agent.context();
    await agent.answer(approve(messages.at(-3).tool_call.tool_call_id));
  }),
);

test(
  "a tool that needs no approval any more just runs",
  withAgent(async (agent) => {
    await agent.stream([approval(approve(await agent.ask()))], { stream_tokens: true });
    await client.agents.tools.updateApproval("secret_code", { agent_id: agent.id, body_requires_approval: false });
    assert.deepEqual(kinds(await agent.stream(user(ASK), { stream_tokens: true })), [
      "reasoning_message",
      "tool_call_message",
      "tool_return_message",
      "reasoning_message",
      "assistant_message",
      ...ENDED,
    ]);
  }),
);

test(
  "an approved call runs",
  withAgent(async (agent) => {
    const id = await agent.ask();
    const messages = await agent.stream([approval(approve(id))], { stream_tokens: true });
    assert.equal(messages[0].message_type, "tool_return_message");
    assert.equal(messages[0].tool_call_id, id);
    assert.equal(messages[0].status, "success");
    assert.deepEqual(kinds(messages).slice(-2), ENDED);
  }),
);

test(
  "a denied call does not run and the model hears why",
  withAgent(async (agent) => {
    const id = await agent.ask(ASK_AND_ECHO);
    const messages = await agent.stream([approval(deny(id))]);
    assert.deepEqual(kinds(messages), ["tool_return_message", "assistant_message", ...ENDED]);
    assert.equal(messages[0].status, "error");
    assert.match(messages[1].content, new RegExp(CODE));
  }),
);

test(
  "a call that ran at the client is told to the model",
  withAgent(async (agent) => {
    const id = await agent.ask(ASK_AND_ECHO);
    const messages = await agent.stream([approval(returned(id))]);
    assert.deepEqual(kinds(messages), ["tool_return_message", "assistant_message", ...ENDED]);
    assert.equal(messages[0].tool_return, CODE);
    assert.match(messages[1].content, new RegExp(CODE));
  }),
);

for (const [name, answer] of Object.entries(ANSWERS)) {
  test(
    `${name}: the answer is found by cursor`,
    withAgent(async (agent) => {
      const cursor = await agent.latest();
      const asked = await agent.send(user(ASK));
      const id = asked.messages.at(-1).tool_call.tool_call_id;
      const before = await agent.log({ after: cursor });
      assert.equal(before[0].message_type, "user_message");
      assert.equal(before.at(-1).message_type, "approval_request_message");
      await agent.answer(answer(id));
      const [response, result] = await agent.log({ after: asked.messages[0].id });
      assert.equal(response.message_type, "approval_response_message");
      const [entry] = response.approvals;
      assert.equal(entry.tool_call_id, id);
      assert.equal(result.message_type, "tool_return_message");
      assert.equal(result.status, name === "deny" ? "error" : "success");
      if (name === "approve") assert.equal(response.approval_request_id, id);
      if (name === "deny") assert.deepEqual([entry.approve, entry.reason], [false, TELL]);
      if (name === "client side") assert.deepEqual([entry.type, entry.tool_return], ["tool", CODE]);
    }),
  );

  test(
    `${name}: the context is there after the answer`,
    withAgent(async (agent) => {
      await agent.stream([approval(answer(await agent.ask()))], { stream_tokens: true });
      assert.ok((await agent.context()).num_messages > 0);
    }),
  );

  test(
    `${name}: the talk goes on after the answer`,
    withAgent(async (agent) => {
      await agent.answer(answer(await agent.ask()));
      const messages = await agent.stream(user(THANKS), { stream_tokens: true });
      assert.deepEqual(kinds(messages), ["reasoning_message", "assistant_message", ...ENDED]);
    }),
  );

  test(
    `${name}: a model that fails after the answer leaves a working agent`,
    withAgent(async (agent) => {
      const id = await agent.ask(ASK_THEN_BREAK);
      const stream = await agent.open([approval(answer(id))], { stream_tokens: true });
      await assert.rejects(merged(stream), (error) => error.error.error_type === "llm_error");
      const messages = await agent.stream(user(THANKS));
      assert.deepEqual(kinds(messages), ["reasoning_message", "assistant_message", ...ENDED]);
    }),
  );

  test(
    `${name}: a message can come with the answer`,
    withAgent(async (agent) => {
      const id = await agent.ask();
      await agent.send([approval(answer(id)), { type: "message", role: "user", content: "say only digits" }]);
      const messages = await agent.stream(user(THANKS), { stream_tokens: true });
      assert.deepEqual(kinds(messages), ["reasoning_message", "assistant_message", ...ENDED]);
    }),
  );
}

test(
  "parallel calls are answered each in its own way",
  withAgent(async (agent) => {
    const cursor = await agent.latest();
    const texts = ["hello world", "hello letta", "hello test"];
    const secrets = texts.map((text) => `call secret_code {"text": "${text}"}`).join(" and ");
    const asked = await agent.send(user(`think of all and say at once and ${secrets} and call roll_dice {"num_sides": 16}`));
    const [dice, request] = asked.messages.slice(-2);
    assert.deepEqual(kinds([dice, request]), ["tool_call_message", "approval_request_message"]);
    assert.deepEqual([dice.tool_calls.length, dice.tool_calls[0].name], [1, "roll_dice"]);
    assert.deepEqual(
      request.tool_calls.map((call) => JSON.parse(call.arguments).text),
      texts,
    );
    const [approved, denied, ranHere] = request.tool_calls.map((call) => call.tool_call_id);
    await agent.context();
    const answered = await agent.answer(approve(approved), deny(denied), returned(ranHere));
    const statuses = Object.fromEntries(answered.messages[0].tool_returns.map((each) => [each.tool_call_id, each.status]));
    assert.deepEqual(statuses, {
      [approved]: "success",
      [denied]: "error",
      [ranHere]: "success",
      [dice.tool_calls[0].tool_call_id]: "success",
    });
    assert.deepEqual(kinds(await agent.log({ after: cursor })).slice(0, 7), [
      "user_message",
      "reasoning_message",
      "assistant_message",
      "tool_call_message",
      "approval_request_message",
      "approval_response_message",
      "tool_return_message",
    ]);
    const messages = await agent.stream(user(THANKS), { stream_tokens: true });
    assert.deepEqual(kinds(messages), ["reasoning_message", "assistant_message", ...ENDED]);
  }),
);

test(
  "the agent remembers why it last stopped",
  withAgent(async (agent) => {
    const id = await agent.ask();
    assert.equal((await agent.state()).last_stop_reason, "requires_approval");
    await agent.answer(approve(id));
    assert.equal((await agent.state()).last_stop_reason, "end_turn");
  }),
);

test(
  "a cancel wins over an approval",
  withAgent(async (agent) => {
    const id = await agent.ask(ASK_THEN_DRONE);
    const stream = await agent.open([approval(approve(id))], { stream_tokens: true });
    let cancelled = null;
    const messages = await merged(stream, async (chunk) => {
      if (chunk.message_type === "assistant_message") cancelled ??= agent.cancel();
    });
    await cancelled;
    assert.equal(messages[0].message_type, "tool_return_message");
    assert.deepEqual(stopReasons(messages), ["cancelled"]);
    const runs = await client.runs.list({ agent_id: agent.id });
    assert.equal(runs.items[0].status, "cancelled");
  }),
);
