import { describe, expect, it } from 'vitest';
import { allows, allowsCommand } from '../../src/api/scopes';

describe('scopes', () => {
  it.each([
    [['jobs:ro'], 'jobs:ro', true],
    [['jobs:rw'], 'jobs:ro', true],
    [['jobs:ro'], 'jobs:rw', false],
    [['*'], 'system:rw', true],
    [[], 'any', true],
    [['system:rw'], '*', false],
    [['jobs:rw'], 'system:ro', false],
  ])('%j allows %s: %s', (granted, wanted, isAllowed) => {
    expect(allows(granted as string[], wanted as string)).toBe(isAllowed);
  });

  it.each([
    [['plugin:ro'], 'read', true],
    [['plugin:ro'], 'write', false],
    [['echo:rw'], 'write', true],
    [['other:rw'], 'write', false],
  ])('%j allows a command of type %s: %s', (granted, type, isAllowed) => {
    expect(allowsCommand(granted as string[], 'echo', type as 'read' | 'write')).toBe(isAllowed);
  });

  it('does not take the scope of a noun for that of a plugin with its name', () => {
    expect(allowsCommand(['jobs:rw'], 'jobs', 'write')).toBe(false);
  });
});
