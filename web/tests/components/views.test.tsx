import { render } from 'preact';
import { act } from 'preact/test-utils';
import { afterEach, describe, expect, it } from 'vitest';
import { parseJson } from '../../src/api/json';
import { JsonView } from '../../src/components/json-view';
import { LogView } from '../../src/components/log-view';
import { checkPayload, initialPayload, PayloadEditor } from '../../src/components/schema-form';
import { sortRows } from '../../src/components/table';

const root = document.createElement('div');

afterEach(() => render(null, root));

async function show(content: Parameters<typeof render>[0]): Promise<HTMLElement> {
  await act(() => render(content, root));
  return root;
}

describe('JsonView', () => {
  it('shows integers exactly and markup as text', async () => {
    const value = parseJson('{"id": 9007199254740993, "html": "<img src=x onerror=alert(1)>"}');
    const view = await show(<JsonView value={value} />);
    expect(view.textContent).toContain('9007199254740993');
    expect(view.textContent).toContain('<img src=x onerror=alert(1)>');
    expect(view.querySelector('img')).toBeNull();
  });

  it('shows a long list in parts', async () => {
    const view = await show(<JsonView value={Array.from({ length: 250 }, (_, i) => i)} />);
    expect(view.querySelectorAll('li')).toHaveLength(100);
  });
});

describe('LogView', () => {
  it('has only the visible lines in the document, as text', async () => {
    const view = await show(<LogView text={'<b>line</b>\n'.repeat(10_000)} name="x.log" />);
    const lines = view.querySelectorAll('.log-line');
    expect(lines.length).toBeGreaterThan(10);
    expect(lines.length).toBeLessThan(200);
    expect(view.querySelector('b')).toBeNull();
    expect(lines[0]?.textContent).toBe('1<b>line</b>');
    expect(view.textContent).toContain('10,000 lines');
  });
});

describe('PayloadEditor', () => {
  const schema = {
    type: 'object',
    properties: { city: { type: 'string' }, days: { type: 'integer', default: 3 } },
    required: ['city'],
  };

  it('begins with the defaults and names what is missing', () => {
    expect(initialPayload(schema)).toBe('{\n  "days": 3\n}');
    expect(checkPayload('{"days": 3}', schema)).toBe('Required: city.');
    expect(checkPayload('{"city": "Graz"}', schema)).toBeNull();
    expect(checkPayload('[1]', null)).toMatch(/object/);
    expect(checkPayload('{', null)).toMatch(/not JSON/);
  });

  it('changes one key and keeps the others exact', async () => {
    let text = '{"id": 9007199254740993, "city": "Graz"}';
    const view = await show(
      <PayloadEditor
        schema={schema}
        text={text}
        onChange={(next) => {
          text = next;
        }}
      />,
    );
    const field = view.querySelector<HTMLInputElement>('#field-city');
    if (!field) throw new Error('there is no field for city');
    field.value = 'Linz';
    field.dispatchEvent(new Event('change', { bubbles: true }));
    expect(parseJson(text)).toEqual({ id: 9007199254740993n, city: 'Linz' });
  });
});

describe('sortRows', () => {
  const columns = [
    { id: 'n', title: 'N', cell: () => null, sortBy: (row: { n: number | null }) => row.n },
  ];
  const rows = [{ n: 10 }, { n: null }, { n: 9 }];

  it('sorts numbers as numbers, rows without a value last', () => {
    expect(sortRows(rows, columns, 'n').map(({ n }) => n)).toEqual([9, 10, null]);
    expect(sortRows(rows, columns, '-n').map(({ n }) => n)).toEqual([null, 10, 9]);
  });

  it('keeps the order for an unknown column', () => {
    expect(sortRows(rows, columns, 'x')).toBe(rows);
  });
});
