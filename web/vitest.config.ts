import { defineConfig } from 'vitest/config';

export default defineConfig({
  // A test compares the topics with those of the gateway's source.
  server: { fs: { allow: ['..'] } },
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  test: { environment: 'happy-dom', include: ['tests/**/*.test.{ts,tsx}'] },
});
