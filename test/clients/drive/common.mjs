// What every driver in JavaScript needs: its arguments, a picture, and one line of JSON for each case.

const SECONDS = 40;
export const PIXEL =
  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/** Calls `ask(mode, feature, url)` for each argument `MODE/FEATURE=URL`; what it throws is what a user sees. */
export async function main(ask) {
  for (const argument of process.argv.slice(2)) {
    const name = argument.slice(0, argument.indexOf("="));
    const url = argument.slice(argument.indexOf("=") + 1);
    const [mode, feature] = name.split("/");
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
    console.log(JSON.stringify({ case: name, ...seen }));
  }
  process.exit(0);
}
