// The OpenAI Agents SDK for JavaScript: `use_agents.mjs MODE/FEATURE=URL…` with the modes plain, stream, websocket.

import { Agent, OpenAIProvider, Runner, setTracingDisabled, tool } from "@openai/agents";
import OpenAI from "openai";
import { z } from "zod";
import { PIXEL, main } from "./common.mjs";

setTracingDisabled(true);
const get_weather = tool({
  name: "get_weather",
  description: "How the weather is.",
  parameters: z.object({ city: z.string() }),
  execute: async ({ city }) => `${city} is sunny`,
});
const City = z.object({ city: z.string(), degrees: z.number() });

async function use(mode, feature, url) {
  const openAIClient = new OpenAI({ baseURL: `${url}/v1`, apiKey: "unused" });
  const modelProvider = new OpenAIProvider({
    openAIClient,
    useResponses: true,
    useResponsesWebSocket: mode === "websocket",
  });
  const runner = new Runner({ modelProvider, tracingDisabled: true });
  const agent = new Agent({
    name: "Asker",
    instructions: "Answer shortly.",
    model: "local",
    modelSettings: feature === "reasoning" ? { reasoning: { effort: "low", summary: "auto" } } : {},
    tools: ["tools", "parallel", "reasoning"].includes(feature) ? [get_weather] : [],
    ...(feature === "structured" ? { outputType: City } : {}),
  });

  async function ask(what, more = {}) {
    if (mode !== "stream") {
      const result = await runner.run(agent, what, { maxTurns: 5, ...more });
      return { text: result.finalOutput, last: result.lastResponseId };
    }
    const result = await runner.run(agent, what, { maxTurns: 5, stream: true, ...more });
    let deltas = 0;
    for await (const event of result)
      if (event.type === "raw_model_stream_event" && event.data.type === "output_text_delta") deltas++;
    await result.completed;
    return { text: result.finalOutput, deltas, last: result.lastResponseId };
  }

  if (feature === "chain") {
    const first = await ask("One.");
    return ask("Two.", { previousResponseId: first.last });
  }
  if (feature === "conversation") {
    const conversationId = (await openAIClient.conversations.create()).id;
    await ask("One.", { conversationId });
    return ask("Two.", { conversationId });
  }
  if (feature === "images") {
    const content = [
      { type: "input_text", text: "Look." },
      { type: "input_image", image: PIXEL },
    ];
    return ask([{ role: "user", content }]);
  }
  const seen = await ask("How is the weather?");
  if (feature === "structured") seen.text = `${seen.text.city} has ${seen.text.degrees} degrees.`;
  return seen;
}

await main(use);
