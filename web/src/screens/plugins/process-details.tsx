// How the processes of a plugin are started, and what its sandbox enforces.

import type { PluginSandbox, PluginStart } from '../../api/types';
import { formatBytes } from '../../format/text';

export function describeStart({ mode, reason, memory_bytes, slots }: PluginStart): string {
  if (mode !== 'warm') return `${mode}: ${reason}`;
  return `warm, its zygote takes ${formatBytes(memory_bytes)}, ${slots} slots`;
}

export function SandboxSummary({ sandbox }: { sandbox: PluginSandbox }) {
  return (
    <>
      {sandbox.level}; enforced: {sandbox.held.join(', ') || 'nothing'}
      {Object.entries(sandbox.not_held).map(([name, reason]) => (
        <p key={name} class="why-error">
          not enforced: {name}: {reason}
        </p>
      ))}
      <p class="muted">{grantsOf(sandbox).join('; ')}</p>
    </>
  );
}

function grantsOf({ read, write, network, memory, processes, ...rest }: PluginSandbox): string[] {
  return [
    read.length && `reads ${read.join(', ')}`,
    write.length && `writes ${write.join(', ')}`,
    `network: ${Array.isArray(network) ? network.join(', ') : network}`,
    memory && `memory: ${formatBytes(memory)}`,
    processes && `processes: ${processes}`,
    rest.cpu_time && `processor time: ${rest.cpu_time} s`,
    rest.file_size && `file size: ${formatBytes(rest.file_size)}`,
  ].filter((grant) => typeof grant === 'string');
}
