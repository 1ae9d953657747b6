import { defineConfig } from 'vite';

const gateway = process.env.DUCTILE_URL ?? 'http://127.0.0.1:8080';

// The build is committed and compared by CI, so the same sources must give the same bytes:
// names contain only the hash of the content, and nothing depends on the time or the machine.
export default defineConfig({
  base: '/ui/',
  oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
  build: {
    target: 'es2022',
    outDir: '../src/ductile/http/static/ui',
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    sourcemap: false,
  },
  server: {
    // The gateway owns every path except the page's own files.
    proxy: { '^/(?!ui/)|^/ui/session': { target: gateway, changeOrigin: false } },
  },
});
