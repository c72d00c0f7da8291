/* What is put aside while tests/many_rows.py writes, and set afterwards. */

-- keys
SELECT conrelid::regclass::text AS "table", conname, pg_get_constraintdef(oid), contype::text FROM pg_constraint
WHERE contype IN ('f', 'p', 'u') AND (conrelid::regclass::text = ANY(%(tables)s)
  OR confrelid <> 0 AND confrelid::regclass::text = ANY(%(tables)s))
ORDER BY contype;

-- indexes
SELECT tablename, indexname, indexdef FROM pg_indexes
WHERE tablename = ANY(%(tables)s) AND NOT EXISTS (SELECT FROM pg_constraint WHERE conname = indexname);

-- sequences
SELECT setval(pg_get_serial_sequence(%(table)s, attname), 10000000) FROM pg_attribute
WHERE attrelid = %(table)s::regclass AND attidentity <> '';
