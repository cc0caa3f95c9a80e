# Runs queries over tables in memory, one thread, for the benchmark that started it. Standard input: a line of JSON each; {"table",
# "csv", "times"} loads a file, {"sql", "all"} runs a query, and gives its rows, which are numbers, if `all` is true. Standard output: a line of JSON for each.
import json, sys, time

import duckdb

db = duckdb.connect()
db.execute("SET threads = 1")
# It would print between the lines of JSON.
db.execute("SET enable_progress_bar = false")
for line in sys.stdin:
    asked = json.loads(line)
    if "csv" in asked:
        times = ", ".join(f"make_timestamp({name}::BIGINT) AS {name}" for name in asked["times"])
        db.execute(f"CREATE TABLE {asked['table']} AS SELECT * REPLACE ({times}) FROM read_csv('{asked['csv']}', header = true)")
        print(json.dumps({"rows": db.execute(f"SELECT count(*) FROM {asked['table']}").fetchone()[0]}), flush=True)
    else:
        # The result is made and kept, as a subscriber takes every row; its rows are counted afterwards.
        start = time.perf_counter()
        db.execute(f"CREATE OR REPLACE TEMP TABLE result AS {asked['sql']}")
        took = time.perf_counter() - start
        answer = {"rows": db.execute("SELECT count(*) FROM result").fetchone()[0], "took_s": took}
        if asked["all"]:
            answer["all"] = db.execute("SELECT * FROM result").fetchall()
        print(json.dumps(answer), flush=True)
