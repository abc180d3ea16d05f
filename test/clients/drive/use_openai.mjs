// The OpenAI SDK for Node: `use_openai.mjs MODE/FEATURE=URL…` with the modes plain, stream, websocket.

import OpenAI from "openai";
import { zodResponsesFunction, zodTextFormat } from "openai/helpers/zod";
import { ResponsesWS } from "openai/resources/responses/ws";
import { z } from "zod";
import { PIXEL, main } from "./common.mjs";

const City = z.object({ city: z.string(), degrees: z.number() });
const tools = [zodResponsesFunction({ name: "get_weather", parameters: z.object({ city: z.string() }) })];

class Asker {
  deltas = 0;
  constructor(mode, client) {
    this.mode = mode;
    this.client = client;
    this.socket = mode === "websocket" ? new ResponsesWS(client, { reconnect: null }) : null;
  }

  async ask(input, more = {}) {
    if (this.socket) return this.overSocket(input, more);
    if (this.mode === "plain") return this.client.responses.parse({ model: "local", input, ...more });
    const stream = this.client.responses.stream({ model: "local", input, ...more });
    for await (const event of stream) {
      if (event.type === "response.output_text.delta") this.deltas++;
      if (event.type === "response.failed") throw new Error(event.response.error.message);
    }
    return stream.finalResponse();
  }

  overSocket(input, more) {
    return new Promise((done, fail) => {
      const plain = tools.map(({ type, name, parameters, strict }) => ({ type, name, parameters, strict }));
      this.socket.on("response.output_text.delta", () => this.deltas++);
      this.socket.once("response.completed", (event) => done(event.response));
      this.socket.once("response.failed", (event) => fail(new Error(event.response.error.message)));
      this.socket.once("error", fail);
      this.socket.once("close", () => fail(new Error("the socket was closed before the answer was whole")));
      const frame = { type: "response.create", model: "local", input, ...more };
      this.socket.send(more.tools ? { ...frame, tools: plain } : frame);
    });
  }
}

const textOf = (response) =>
  response.output_text ??
  response.output.flatMap((item) => item.content ?? []).map((part) => part.text ?? "").join("");

async function useTools(asker, feature) {
  const more = { tools };
  if (feature === "reasoning")
    Object.assign(more, { store: false, include: ["reasoning.encrypted_content"], reasoning: { summary: "auto" } });
  const items = [{ role: "user", content: "How is the weather?" }];
  for (let turn = 0; turn < 4; turn++) {
    const answer = await asker.ask(items, more);
    const calls = answer.output.filter((item) => item.type === "function_call");
    if (!calls.length) return answer;
    items.push(...answer.output);
    for (const call of calls) {
      const { city } = call.parsed_arguments ?? JSON.parse(call.arguments);
      items.push({ type: "function_call_output", call_id: call.call_id, output: `${city} is sunny` });
    }
  }
  throw new Error("it never stopped calling");
}

async function use(mode, feature, url) {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "unused" });
  const asker = new Asker(mode, client);
  let answer;
  if (["tools", "parallel", "reasoning"].includes(feature)) answer = await useTools(asker, feature);
  else if (feature === "structured") {
    answer = await asker.ask("Graz?", { text: { format: zodTextFormat(City, "city") } });
    const { city, degrees } = answer.output_parsed ?? JSON.parse(textOf(answer));
    return { text: `${city} has ${degrees} degrees.` };
  } else if (feature === "images") {
    const content = [
      { type: "input_text", text: "Look." },
      { type: "input_image", image_url: PIXEL, detail: "auto" },
    ];
    answer = await asker.ask([{ role: "user", content }]);
  } else if (feature === "chain") {
    answer = await asker.ask("Two.", { previous_response_id: (await asker.ask("One.")).id });
  } else if (feature === "conversation") {
    const conversation = (await client.conversations.create()).id;
    await asker.ask("One.", { conversation });
    answer = await asker.ask("Two.", { conversation });
  } else answer = await asker.ask("Hello.");
  return mode === "plain" ? { text: textOf(answer) } : { text: textOf(answer), deltas: asker.deltas };
}

await main(use);
