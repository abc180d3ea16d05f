// The AI SDK: `use_ai_sdk.mjs MODE/FEATURE=URL…` with the modes openai, open-responses, and both with -stream.

import { createOpenResponses } from "@ai-sdk/open-responses";
import { createOpenAI } from "@ai-sdk/openai";
import * as ai from "ai";
import { z } from "zod";
import { PIXEL, main } from "./common.mjs";

const get_weather = ai.tool({
  description: "How the weather is.",
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => `${city} is sunny`,
});
const City = z.object({ city: z.string(), degrees: z.number() });

async function use(mode, feature, url) {
  const provider = mode.startsWith("openai")
    ? createOpenAI({ baseURL: `${url}/v1`, apiKey: "unused" })
    : createOpenResponses({ name: "mellea", url: `${url}/v1/responses`, apiKey: "unused" });
  const model = provider("local");
  const settings = { model, maxRetries: 2, stopWhen: (ai.isStepCount ?? ai.stepCountIs)(5) };

  async function ask(more) {
    if (!mode.endsWith("stream")) return { text: (await ai.generateText({ ...settings, ...more })).text };
    let deltas = 0;
    let text = "";
    let last;
    const result = ai.streamText({ ...settings, ...more, onError: () => {} });
    for await (const part of result.fullStream ?? result.stream) {
      if (part.type === "text-delta") {
        deltas++;
        text += part.text;
      }
      if (part.type === "error") throw part.error instanceof Error ? part.error : new Error(JSON.stringify(part.error));
      if (part.type === "finish") last = part.finishReason;
    }
    if (feature === "cut" && !["stop", "length"].includes(last)) return { error: `finish reason ${last}` };
    return { text, deltas };
  }

  if (["tools", "parallel", "reasoning"].includes(feature))
    return ask({ prompt: "How is the weather?", tools: { get_weather } });
  if (feature === "structured") {
    const { output } = await ai.generateText({ ...settings, prompt: "Graz?", output: ai.Output.object({ schema: City }) });
    return { text: `${output.city} has ${output.degrees} degrees.` };
  }
  if (feature === "images") {
    const image = { type: "file", data: PIXEL, mediaType: "image/png" };
    return ask({ messages: [{ role: "user", content: [{ type: "text", text: "Look." }, image] }] });
  }
  if (feature === "chain") {
    const first = await ai.generateText({ ...settings, prompt: "One." });
    const previousResponseId = first.providerMetadata.openai.responseId;
    return ask({ prompt: "Two.", providerOptions: { openai: { previousResponseId } } });
  }
  if (feature === "conversation") {
    const answer = await fetch(`${url}/v1/conversations`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: "{}",
    });
    const providerOptions = { openai: { conversation: (await answer.json()).id } };
    await ask({ prompt: "One.", providerOptions });
    return ask({ prompt: "Two.", providerOptions });
  }
  return ask({ prompt: "Hello." });
}

await main(use);
