// LangChain for JavaScript: `use_langchain.mjs MODE/FEATURE=URL…` with the modes plain, stream.

import { HumanMessage, ToolMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { ChatOpenAI } from "@langchain/openai";
import { z } from "zod";
import { PIXEL, main } from "./common.mjs";

const get_weather = tool(async ({ city }) => `${city} is sunny`, {
  name: "get_weather",
  description: "How the weather is.",
  schema: z.object({ city: z.string() }),
});
const City = z.object({ city: z.string(), degrees: z.number() });

async function use(mode, feature, url) {
  const settings = {
    model: "local",
    apiKey: "unused",
    configuration: { baseURL: `${url}/v1` },
    useResponsesApi: true,
    maxRetries: 0,
    ...(feature === "reasoning" ? { reasoning: { effort: "low", summary: "auto" } } : {}),
  };
  const model = new ChatOpenAI(settings);
  let deltas = 0;

  async function ask(asked, messages, options) {
    if (mode === "plain") return asked.invoke(messages, options);
    let whole;
    for await (const chunk of await asked.stream(messages, options)) {
      if (chunk.text) deltas++;
      whole = whole ? whole.concat(chunk) : chunk;
    }
    return whole;
  }
  const seen = (answer) => (mode === "plain" ? { text: answer.text } : { text: answer.text, deltas });

  if (feature === "structured") {
    const { city, degrees } = await model.withStructuredOutput(City, { method: "jsonSchema" }).invoke("Graz?");
    return { text: `${city} has ${degrees} degrees.` };
  }
  if (feature === "images") {
    const content = [
      { type: "text", text: "Look." },
      { type: "image_url", image_url: { url: PIXEL } },
    ];
    return seen(await ask(model, [new HumanMessage({ content })]));
  }
  if (feature === "chain") {
    const first = await ask(model, [new HumanMessage("One.")]);
    const previous_response_id = first.response_metadata.id;
    return seen(await ask(model, [new HumanMessage("Two.")], { previous_response_id }));
  }
  if (feature === "conversation") {
    const where = { method: "POST", headers: { "content-type": "application/json" }, body: "{}" };
    const conversation = (await (await fetch(`${url}/v1/conversations`, where)).json()).id;
    const inside = new ChatOpenAI({ ...settings, modelKwargs: { conversation } });
    await ask(inside, [new HumanMessage("One.")]);
    return seen(await ask(inside, [new HumanMessage("Two.")]));
  }
  const caller = ["tools", "parallel", "reasoning"].includes(feature) ? model.bindTools([get_weather]) : model;
  const messages = [new HumanMessage("How is the weather?")];
  let answer;
  for (let turn = 0; turn < 4; turn++) {
    answer = await ask(caller, messages);
    messages.push(answer);
    if (!answer.tool_calls?.length) break;
    for (const call of answer.tool_calls)
      messages.push(new ToolMessage({ content: await get_weather.invoke(call.args), tool_call_id: call.id }));
  }
  return seen(answer);
}

await main(use);
