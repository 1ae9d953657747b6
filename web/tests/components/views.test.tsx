import { render } from 'preact';
import { act } from 'preact/test-utils';
import { afterEach, describe, expect, it } from 'vitest';
import { parseJson } from '../../src/api/json';
import { JsonView } from '../../src/components/json-view';
import { lazy } from '../../src/components/lazy';
import { LogView } from '../../src/components/log-view';
import { checkPayload, initialPayload, PayloadEditor } from '../../src/components/schema-form';
import { sortRows } from '../../src/components/table';
import { Timeline } from '../../src/components/timeline';
import { withLinks } from '../../src/screens/job/why';

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

describe('withLinks', () => {
  it('links the ids of jobs, and not that of an approval', async () => {
    const id = '01a1f0ea-09fb-7501-969a-cd507f61d9af';
    const text = `it joins job ${id}; decide with \`ductile approval approve ${id}\``;
    const view = await show(<p>{withLinks(text)}</p>);
    expect(view.textContent).toBe(text);
    expect([...view.querySelectorAll('a')].map(({ hash }) => hash)).toEqual([`#/jobs/${id}`]);
  });
});

describe('Timeline', () => {
  it('keeps short spans at the end visible', async () => {
    const span = (from: string, to: string) => ({ from, to, status: 'succeeded', label: '' });
    const spans = [span('2026-01-01T00:00:00Z', '2026-01-01T00:10:00Z')];
    const last = [span('2026-01-01T00:09:59.999Z', '2026-01-01T00:10:00Z')];
    const rows = [
      { id: '1', title: 'a', spans },
      { id: '2', title: 'b', spans: last },
    ];
    const view = await show(<Timeline rows={rows} />);
    const width = Number(view.querySelector('svg')?.getAttribute('viewBox')?.split(' ')[2]);
    for (const rect of view.querySelectorAll('rect')) {
      const [x, length] = ['x', 'width'].map((name) => Number(rect.getAttribute(name)));
      expect(length).toBeGreaterThan(0);
      expect((x ?? 0) + (length ?? 0)).toBeLessThanOrEqual(width);
    }
  });
});

describe('lazy', () => {
  it('offers to load the page again if a part is missing', async () => {
    const Part = lazy(() => Promise.reject(new Error('404')));
    await show(<Part />);
    const view = await show(<Part />);
    expect(view.textContent).toContain('could not be loaded');
    expect(view.querySelector('button')?.textContent).toBe('Try again');
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
