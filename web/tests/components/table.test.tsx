import { render } from 'preact';
import { act } from 'preact/test-utils';
import { afterEach, expect, it } from 'vitest';
import { Table } from '../../src/components/table';

const root = document.createElement('div');

afterEach(() => {
  render(null, root);
  location.hash = '';
});

it('offers the sort orders of its headings, for a phone that shows no headings', async () => {
  const columns = [
    { id: 'name', title: 'Name', cell: ({ name }: { name: string }) => name, sortBy: nameOf },
    { id: 'note', title: 'Note', cell: () => '' },
  ];
  const rows = [{ name: 'a' }, { name: 'c' }, { name: 'b' }];
  await act(() =>
    render(<Table rows={rows} columns={columns} keyOf={nameOf} label="Rows" />, root),
  );
  const select = root.querySelector('select');
  if (!select) throw new Error('there is no select');
  expect([...select.options].map(({ text }) => text)).toEqual([
    'default order',
    'Name ↑',
    'Name ↓',
  ]);
  select.value = '-name';
  await act(() => {
    select.dispatchEvent(new Event('change', { bubbles: true }));
    dispatchEvent(new Event('hashchange'));
  });
  expect(location.hash).toContain('sort=-name');
  expect([...root.querySelectorAll('tbody tr')].map((row) => row.textContent)).toEqual([
    'c',
    'b',
    'a',
  ]);
});

function nameOf({ name }: { name: string }): string {
  return name;
}
