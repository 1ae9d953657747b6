// A table whose sort order is in the address.

import type { ComponentChildren } from 'preact';
import { useId } from 'preact/hooks';
import { queryValue, setQuery } from '../router/router';

export interface Column<T> {
  id: string;
  title: string;
  cell: (row: T) => ComponentChildren;
  /** Makes the column sortable. */
  sortBy?: (row: T) => string | number | null;
  /** Left out where the rows of a table would be too wide; on a phone each row is a card. */
  wide?: boolean;
  align?: 'right';
}

interface TableProps<T> {
  rows: T[];
  columns: Column<T>[];
  keyOf: (row: T) => string | number;
  label: string;
  /** A column, with `-` in front for descending order. */
  defaultSort?: string;
}

export function Table<T>({ rows, columns, keyOf, label, defaultSort = '' }: TableProps<T>) {
  const sort = queryValue('sort', defaultSort);
  const shown = sortRows(rows, columns, sort);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must take the keyboard.
    <section class="table-wrap" tabIndex={0} aria-label={label}>
      {rows.length > 1 && <SortSelect columns={columns} sort={sort} defaultSort={defaultSort} />}
      <table>
        <thead>
          <tr>
            {columns.map((column) => (
              <HeaderCell key={column.id} column={column} sort={sort} defaultSort={defaultSort} />
            ))}
          </tr>
        </thead>
        <tbody>
          {shown.map((row) => (
            <tr key={keyOf(row)}>
              {columns.map((column) => (
                <td key={column.id} class={classOf(column)} data-label={column.title}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

interface SortSelectProps<T> {
  columns: Column<T>[];
  sort: string;
  defaultSort: string;
}

/** The sort order on a phone, where the rows are cards and the headings are not shown. */
function SortSelect<T>({ columns, sort, defaultSort }: SortSelectProps<T>) {
  const id = useId();
  const sortable = columns.filter(({ sortBy }) => sortBy);
  if (sortable.length === 0) return null;
  return (
    <div class="card-sort">
      <label for={id}>Sort by</label>
      <select
        id={id}
        value={sort}
        onChange={({ currentTarget: { value } }) =>
          setQuery({ sort: value === defaultSort ? null : value })
        }
      >
        {!defaultSort && <option value="">default order</option>}
        {sortable.flatMap(({ id, title }) => [
          <option key={id} value={id}>
            {title} ↑
          </option>,
          <option key={`-${id}`} value={`-${id}`}>
            {title} ↓
          </option>,
        ])}
      </select>
    </div>
  );
}

interface HeaderCellProps<T> {
  column: Column<T>;
  sort: string;
  defaultSort: string;
}

function HeaderCell<T>({ column, sort, defaultSort }: HeaderCellProps<T>) {
  const { id, title, sortBy } = column;
  if (!sortBy) {
    return (
      <th scope="col" class={classOf(column)}>
        {title || <span class="visually-hidden">Actions</span>}
      </th>
    );
  }
  const isUp = sort === id;
  const isDown = sort === `-${id}`;
  const next = isUp ? `-${id}` : id;
  return (
    <th
      scope="col"
      class={classOf(column)}
      aria-sort={isUp ? 'ascending' : isDown ? 'descending' : 'none'}
    >
      <button
        type="button"
        class="sort"
        onClick={() => setQuery({ sort: next === defaultSort ? null : next })}
      >
        {title}
        <span aria-hidden="true">{isUp ? ' ↑' : isDown ? ' ↓' : ''}</span>
      </button>
    </th>
  );
}

function classOf<T>({ wide, align }: Column<T>): string {
  return [wide && 'wide-only', align && 'align-right'].filter(Boolean).join(' ');
}

export function sortRows<T>(rows: T[], columns: Column<T>[], sort: string): T[] {
  const isDown = sort.startsWith('-');
  const sortBy = columns.find(({ id }) => id === sort.replace(/^-/, ''))?.sortBy;
  if (!sortBy) return rows;
  const sorted = [...rows].sort((a, b) => compare(sortBy(a), sortBy(b)));
  return isDown ? sorted.reverse() : sorted;
}

/** Rows without a value come last in ascending order. */
function compare(a: string | number | null, b: string | number | null): number {
  if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
  if (typeof a === 'number' && typeof b === 'number') return a - b;
  return String(a).localeCompare(String(b), undefined, { numeric: true });
}
