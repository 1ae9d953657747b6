import { render } from 'preact';
import { act } from 'preact/test-utils';
import { afterEach, expect, it } from 'vitest';
import { describeStart, SandboxSummary } from '../../src/screens/plugins/process-details';

const root = document.createElement('div');
const SANDBOX = {
  level: 'best_effort' as const,
  held: ['files', 'processes'],
  not_held: { signals: 'needs Landlock ABI 6' },
  read: ['/srv/in'],
  write: [],
  network: [443, 8443],
  memory: 512 * 1024 * 1024,
  processes: null,
  cpu_time: 30,
  file_size: null,
};

afterEach(() => render(null, root));

it('shows what of a sandbox is held, what is not and why, and what it grants', async () => {
  await act(() => render(<SandboxSummary sandbox={SANDBOX} />, root));
  expect(root.textContent).toContain('best_effort; enforced: files, processes');
  expect(root.querySelector('.why-error')?.textContent).toBe(
    'not enforced: signals: needs Landlock ABI 6',
  );
  expect(root.querySelector('.muted')?.textContent).toBe(
    'reads /srv/in; network: 443, 8443; memory: 512.0 MB; processor time: 30 s',
  );
});

it('shows why a plugin is not warm', () => {
  const cold = { mode: 'cold' as const, reason: 'it has PYTHONPATH', memory_bytes: 0, slots: 0 };
  expect(describeStart(cold)).toBe('cold: it has PYTHONPATH');
  const warm = { mode: 'warm' as const, reason: null, memory_bytes: 9 * 1024 * 1024, slots: 2 };
  expect(describeStart(warm)).toBe('warm, its zygote takes 9.0 MB, 2 slots');
});
