"""What a sandboxed plugin may touch, as the kernel enforces it.

The gateway decides (`policy.Policy`), a slot applies it between fork and exec
(`restrict.Restrictions`). No privileges are needed, and nothing that a plugin starts can undo it.
Standard library only.
"""
