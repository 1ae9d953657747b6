// A browser for all scenarios of a test run: prints its address, and ends when its input does.

import { launchServer } from './session.mjs';

const server = await launchServer();
console.log(server.wsEndpoint());
process.stdin.resume().on('end', async () => {
  await server.close();
  process.exit(0);
});
