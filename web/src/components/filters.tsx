// Filters whose values are in the address.

import type { ComponentChildren } from 'preact';
import { currentQuery, queryValue, setQuery } from '../router/router';

const NOT_FILTERS = new Set(['tab', 'sort', 'before', 'name', 'attempt']);

export function Filters({ children }: { children: ComponentChildren }) {
  const names = [...currentQuery.value.keys()].filter((name) => !NOT_FILTERS.has(name));
  const clear = () =>
    setQuery(Object.fromEntries([...names, 'before'].map((name) => [name, null])));
  return (
    <search class="filters">
      {children}
      {names.length > 0 && (
        <button type="button" class="quiet" onClick={clear}>
          Clear filters
        </button>
      )}
    </search>
  );
}

interface SelectFilterProps {
  name: string;
  label: string;
  options: readonly string[];
  all?: string;
  /** What options are called, if not as they are sent. */
  names?: Record<string, string>;
}

export function SelectFilter({ name, label, options, all = 'all', names = {} }: SelectFilterProps) {
  const value = queryValue(name);
  const shown = !value || options.includes(value) ? options : [value, ...options];
  return (
    <label class="field">
      <span>{label}</span>
      <select
        value={value}
        onChange={(event) => setQuery({ [name]: event.currentTarget.value, before: null })}
      >
        <option value="">{all}</option>
        {shown.map((option) => (
          <option key={option} value={option}>
            {names[option] ?? option.replaceAll('_', ' ')}
          </option>
        ))}
      </select>
    </label>
  );
}

interface TextFilterProps {
  name: string;
  label: string;
  placeholder?: string;
}

/** Takes effect with Enter or when the field loses the focus. */
export function TextFilter({ name, label, placeholder = '' }: TextFilterProps) {
  const value = queryValue(name);
  const apply = (text: string) => {
    if (text.trim() !== value) setQuery({ [name]: text.trim(), before: null });
  };
  return (
    <label class="field">
      <span>{label}</span>
      <input
        type="search"
        key={value}
        defaultValue={value}
        placeholder={placeholder}
        onBlur={(event) => apply(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === 'Enter') apply(event.currentTarget.value);
        }}
      />
    </label>
  );
}
