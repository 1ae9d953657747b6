-- Sessions of the dashboard. Only the hash of the cookie is stored.

-- A session ends with its token; token_hash is NULL if it was opened over the local socket.
CREATE TABLE ui_sessions (
  hash       @key@ PRIMARY KEY,
  token_hash @key@,
  created_at @key@ NOT NULL,
  seen_at    @key@ NOT NULL
);
