-- What a statement calls that has written fewer rows than it should. It fails the
-- transaction with a SQLSTATE of our own, also where COMMIT has been sent already.

CREATE FUNCTION holdfast_missing_rows(wanted BIGINT, written BIGINT) RETURNS BOOLEAN LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    RAISE EXCEPTION 'the statement has written % rows, not %', written, wanted USING ERRCODE = 'HF001';
END $$;
