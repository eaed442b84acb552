// What users of the SDK write for themselves: merging chunks, approving, and an agent with a guarded tool.

import Letta from "@letta-ai/letta-client";

export const CODE = "740845635798344975";
export const TELL = `You need not call it: the code is ${CODE}`;

// What the fake provider is told. It thinks, because Claude does.
const CALL = 'think about the code and call secret_code {"text": "hello world"}';
export const ASK = `${CALL} then think about it and say here it is`;
export const ASK_AND_ECHO = CALL;
export const ASK_THEN_BREAK = `${CALL} then fail llm_error`;
export const ASK_THEN_DRONE = `${CALL} then count slowly to 3000`;
export const THANKS = "think kindly and say you are welcome";
export const ENDED = ["stop_reason", "usage_statistics"];

const SECRET_CODE = `def secret_code(text: str) -> str:
    """
    Tells the secret code of a text.

    Args:
        text (str): The text.
    """
    return str(sum(ord(letter) for letter in text))
`;

const ROLL_DICE = `def roll_dice(num_sides: int) -> str:
    """
    Rolls a die.

    Args:
        num_sides (int): How many sides it has.
    """
    import random

    return str(random.randint(1, num_sides))
`;

export const client = new Letta({ baseURL: process.env.BRIDLE_URL, apiKey: null });

export const user = (text) => [{ role: "user", content: text }];
export const approval = (...approvals) => ({ type: "approval", approvals });
export const approve = (id) => ({ type: "approval", approve: true, tool_call_id: id });
export const deny = (id, reason = TELL) => ({ type: "approval", approve: false, tool_call_id: id, reason });
export const returned = (id) => ({ type: "tool", tool_call_id: id, tool_return: CODE, status: "success" });
export const kinds = (messages) => messages.map((message) => message.message_type);
export const stopReasons = (messages) =>
  messages.filter((message) => message.message_type === "stop_reason").map((message) => message.stop_reason);

/** Chunks of one kind in a row as one message; `onChunk` sees each of them first. */
export async function merged(stream, onChunk = async () => {}) {
  const messages = [];
  for await (const chunk of stream) {
    await onChunk(chunk);
    const last = messages.at(-1);
    if (last?.message_type !== chunk.message_type) messages.push(chunk);
    else if (typeof last.content === "string") last.content += chunk.content;
  }
  return messages;
}

/** One agent, and what its user says to it. */
export class Agent {
  constructor(id) {
    this.id = id;
  }

  send(messages, options = {}) {
    return client.agents.messages.create(this.id, { messages, ...options });
  }

  open(messages, options = {}) {
    return client.agents.messages.stream(this.id, { messages, ...options });
  }

  async stream(messages, options = {}) {
    return merged(await this.open(messages, options));
  }

  /** Say something that makes a call wait; the call's id. */
  async ask(text = ASK) {
    const { messages } = await this.send(user(text));
    return messages.at(-1).tool_call.tool_call_id;
  }

  answer(...entries) {
    return this.send([approval(...entries)]);
  }

  async log(options = {}) {
    return (await client.agents.messages.list(this.id, options)).items;
  }

  async latest() {
    return (await this.log({ limit: 1 }))[0].id;
  }

  context() {
    return client.get(`/v1/agents/${this.id}/context`);
  }

  state(options = {}) {
    return client.agents.retrieve(this.id, options);
  }

  cancel() {
    return client.agents.messages.cancel(this.id);
  }
}

/** Run a test with an agent whose calls of `secret_code` wait for a person. */
export const withAgent = (work) => async () => {
  const guarded = await client.tools.upsert({ source_code: SECRET_CODE, default_requires_approval: true });
  const dice = await client.tools.upsert({ source_code: ROLL_DICE });
  const made = await client.agents.create({
    name: "approval twin",
    agent_type: "letta_v1_agent",
    include_base_tools: false,
    include_base_tool_rules: false,
    tool_ids: [guarded.id, dice.id],
    tool_rules: [],
    model: "anthropic/claude-sonnet-4-5-20250929",
    embedding: "openai/text-embedding-3-small",
    tags: ["approval_test"],
  });
  await client.agents.update(made.id, { parallel_tool_calls: true });
  try {
    await work(new Agent(made.id));
  } finally {
    await client.agents.delete(made.id);
    await client.tools.delete(guarded.id);
    await client.tools.delete(dice.id);
  }
};
