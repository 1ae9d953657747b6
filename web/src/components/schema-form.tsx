// A form made from the JSON Schema of a command's input. The text of the payload is the only
// state: a field edits one key of it, so that form and JSON never differ.

import { useState } from 'preact/hooks';
import { formatJson, type Json, parseJson } from '../api/json';

export interface Schema {
  type?: string | string[];
  properties?: Record<string, Schema>;
  required?: string[];
  enum?: Json[];
  description?: string;
  default?: Json;
}

interface PayloadEditorProps {
  schema: Schema | null;
  text: string;
  onChange: (text: string) => void;
}

/** Returns what is wrong with a payload, or null. */
export function checkPayload(text: string, schema: Schema | null): string | null {
  const value = readObject(text);
  if (typeof value === 'string') return value;
  const missing = (schema?.required ?? []).filter((key) => value[key] === undefined);
  return missing.length ? `Required: ${missing.join(', ')}.` : null;
}

/** Returns the payload that a form begins with. */
export function initialPayload(schema: Schema | null): string {
  const entries = Object.entries(schema?.properties ?? {}).flatMap(([key, { default: value }]) =>
    value === undefined ? [] : [[key, value] as const],
  );
  return formatJson(Object.fromEntries(entries));
}

function readObject(text: string): Record<string, Json> | string {
  try {
    const value = parseJson(text || '{}');
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
    return 'The payload must be a JSON object.';
  } catch (error) {
    return `The payload is not JSON: ${(error as Error).message}`;
  }
}

export function PayloadEditor({ schema, text, onChange }: PayloadEditorProps) {
  const fields = Object.entries(schema?.properties ?? {});
  const [isForm, setForm] = useState(fields.length > 0);
  const value = readObject(text);
  const canBeForm = fields.length > 0 && typeof value !== 'string';
  const problem = checkPayload(text, schema);
  return (
    <div class="payload">
      {fields.length > 0 && (
        <div class="segments">
          <button type="button" aria-pressed={isForm} onClick={() => setForm(true)}>
            Form
          </button>
          <button type="button" aria-pressed={!isForm} onClick={() => setForm(false)}>
            JSON
          </button>
        </div>
      )}
      {isForm && canBeForm ? (
        fields.map(([key, field]) => (
          <Field
            key={key}
            name={key}
            schema={field}
            isRequired={schema?.required?.includes(key) ?? false}
            value={value[key]}
            onChange={(next) => onChange(formatJson(withKey(value, key, next)))}
          />
        ))
      ) : (
        <label class="field">
          <span>Payload</span>
          <textarea
            rows={10}
            spellcheck={false}
            value={text}
            onInput={(event) => onChange(event.currentTarget.value)}
          />
        </label>
      )}
      <p class="problem" role="status">
        {problem}
      </p>
    </div>
  );
}

function withKey(value: Record<string, Json>, key: string, next: Json | undefined) {
  const { [key]: _, ...rest } = value;
  return next === undefined ? rest : { ...value, [key]: next };
}

interface FieldProps {
  name: string;
  schema: Schema;
  isRequired: boolean;
  value: Json | undefined;
  onChange: (value: Json | undefined) => void;
}

function Field({ name, schema, isRequired, value, onChange }: FieldProps) {
  const type = typeOf(schema);
  return (
    <div class="field">
      <label for={`field-${name}`}>
        {name}
        {isRequired && <em> required</em>}
        <small> {type}</small>
      </label>
      <FieldInput
        id={`field-${name}`}
        type={type}
        options={schema.enum}
        value={value}
        onChange={onChange}
      />
      {schema.description && <small class="muted">{schema.description}</small>}
    </div>
  );
}

interface FieldInputProps {
  id: string;
  type: string;
  options: Json[] | undefined;
  value: Json | undefined;
  onChange: (value: Json | undefined) => void;
}

function FieldInput({ id, type, options, value, onChange }: FieldInputProps) {
  const choices = options ?? (type === 'boolean' ? [true, false] : null);
  if (choices) {
    return (
      <select
        id={id}
        value={value === undefined ? '' : formatJson(value, 0)}
        onChange={({ currentTarget: { value: text } }) =>
          onChange(text ? parseJson(text) : undefined)
        }
      >
        <option value="">not set</option>
        {choices.map((choice) => (
          <option key={String(choice)} value={formatJson(choice, 0)}>
            {String(choice)}
          </option>
        ))}
      </select>
    );
  }
  const isText = type === 'string';
  const shown = value === undefined ? '' : isText ? String(value) : formatJson(value, 0);
  return (
    <input
      id={id}
      type="text"
      inputMode={type === 'integer' ? 'numeric' : undefined}
      value={shown}
      onChange={({ currentTarget: { value: text } }) =>
        onChange(text === '' ? undefined : isText ? text : readValue(text))
      }
    />
  );
}

/** A value that is not JSON stays text; the gateway reports what it expects. */
function readValue(text: string): Json {
  try {
    return parseJson(text);
  } catch {
    return text;
  }
}

function typeOf({ type, enum: options }: Schema): string {
  if (options) return 'choice';
  return Array.isArray(type) ? (type[0] ?? 'any') : (type ?? 'any');
}
