// The contract of cells, through a client that was generated from the OpenAPI document: node contract.js URL TOKEN.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { ApiError, DefaultService as api, OpenAPI } from "./generated";

[OpenAPI.BASE, OpenAPI.TOKEN] = process.argv.slice(2);

const refused = async (call: Promise<unknown>): Promise<ApiError> => {
  const error = await call.then(() => assert.fail("it was not refused"), (reason) => reason);
  assert(error instanceof ApiError, String(error));
  return error;
};

const contract: Record<string, () => Promise<void>> = {
  "a put cell is read back equal, and exists when it is put again": async () => {
    const cell = { rowKey: randomUUID(), columnName: "BASE", refKey: "1" };
    const body = { name: "Ærø / ☃", fare: 12.5, seats: [1, null, true], none: {} };
    assert.equal((await api.putCell({ ...cell, requestBody: body })).status, "CREATED");
    assert.equal((await api.putCell({ ...cell, requestBody: body })).status, "EXISTS");
    assert.deepEqual((await api.getCell(cell)).body, body);
  },
  "another body under the key conflicts, and the stored one is shown": async () => {
    const cell = { rowKey: randomUUID(), columnName: "a/b c", refKey: "1" };
    await api.putCell({ ...cell, requestBody: 1 });
    const error = await refused(api.putCell({ ...cell, requestBody: 2 }));
    assert.equal(error.status, 409);
    assert.equal(error.body.error.outcome, "not_stored");
    assert.deepEqual([error.body.error.stored.body, error.body.error.stored.column_name], [1, "a/b c"]);
  },
  "an older version that arrives late does not become the latest": async () => {
    const column = { rowKey: randomUUID(), columnName: "BASE" };
    for (const refKey of ["9223372036854775807", "-9223372036854775808", "9007199254740993"])
      await api.putCell({ ...column, refKey, requestBody: refKey });
    const latest = await api.getCellLatest(column);
    assert.deepEqual([latest.ref_key, latest.body], ["9223372036854775807", "9223372036854775807"]);
  },
  "a tombstone is a cell, and what was never put is not there": async () => {
    const column = { rowKey: randomUUID(), columnName: "BASE" };
    assert.equal((await refused(api.getCellLatest(column))).status, 404);
    await api.putCell({ ...column, refKey: "1", requestBody: null });
    assert.equal((await api.getCellLatest(column)).body, null);
  },
  "a put that expects another latest cell conflicts": async () => {
    const cell = { rowKey: randomUUID(), columnName: "BASE", refKey: "5" };
    await api.putCell({ ...cell, requestBody: 1, expectLatest: "none" });
    const late = api.putCell({ ...cell, refKey: "6", requestBody: 2, expectLatest: "4" });
    assert.equal((await refused(late)).status, 409);
    assert.equal((await api.putCell({ ...cell, refKey: "6", requestBody: 2, expectLatest: "5" })).status, "CREATED");
  },
  "a batch has one result for each cell, in order, and appended cells take the next ref keys": async () => {
    const row_key = randomUUID();
    const cells = ["A", "B"].map((column_name) => ({ row_key, column_name, ref_key: "1", body: column_name }));
    const { results } = await api.putCells({ requestBody: { cells } });
    assert.deepEqual(results.map((each) => each.status), ["CREATED", "CREATED"]);
    assert.equal((await api.appendCell({ rowKey: row_key, columnName: "A", requestBody: 2 })).ref_key, "2");
    const row = await api.getRow({ rowKey: row_key });
    assert.deepEqual([row.cells.A.body, row.cells.B.body], [2, "B"]);
    const keys = [{ row_key, column_name: "B", ref_key: "1" }, { row_key, column_name: "C", ref_key: "1" }];
    const found = (await api.getCells({ requestBody: { keys } })).cells;
    assert.deepEqual(found.map((cell) => cell && cell.body), ["B", null]);
  },
};

for (const [name, keeps] of Object.entries(contract)) {
  await keeps();
  console.log(`ok - ${name}`);
}
