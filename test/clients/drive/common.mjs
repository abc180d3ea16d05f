// What every driver in JavaScript needs: its arguments, a picture, and one line of JSON for each feature.

const SECONDS = 40;
export const PIXEL =
  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/** Calls `ask(mode, feature, url)` for each `FEATURE=URL` argument; what it throws is what a user sees. */
export async function main(ask) {
  const [mode, ...pairs] = process.argv.slice(2);
  for (const pair of pairs) {
    const feature = pair.slice(0, pair.indexOf("="));
    const url = pair.slice(pair.indexOf("=") + 1);
    let seen;
    try {
      const late = new Promise((done) =>
        setTimeout(done, SECONDS * 1000, { text: `no end after ${SECONDS} s` }).unref(),
      );
      seen = await Promise.race([ask(mode, feature, url), late]);
    } catch (error) {
      console.error(error);
      seen = { error: `${error?.name}: ${error?.message ?? error}` };
    }
    console.log(JSON.stringify({ feature, ...seen }));
  }
  process.exit(0);
}
