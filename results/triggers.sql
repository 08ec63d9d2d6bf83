-- generation.tally repeats what turns, steps and nodes say. Where one of these is changed or taken
-- away by hand, the tally goes, and reports read the rows. No trigger fires for a new row: measuring
-- pays nothing, and stores the tally with the generation. `evalrun validate` finds rows added by
-- hand.

CREATE TRIGGER turn_changed AFTER UPDATE ON turn BEGIN
  UPDATE generation SET tally = NULL
  WHERE id IN (OLD.generation_id, NEW.generation_id) AND tally IS NOT NULL;
END;
CREATE TRIGGER turn_removed AFTER DELETE ON turn BEGIN
  UPDATE generation SET tally = NULL WHERE id = OLD.generation_id AND tally IS NOT NULL;
END;

CREATE TRIGGER step_changed AFTER UPDATE OF turn_id, drafted_depth, accepted, emitted ON step BEGIN
  UPDATE generation SET tally = NULL
  WHERE id IN (SELECT generation_id FROM turn WHERE id IN (OLD.turn_id, NEW.turn_id))
    AND tally IS NOT NULL;
END;
CREATE TRIGGER step_removed AFTER DELETE ON step BEGIN
  UPDATE generation SET tally = NULL
  WHERE id = (SELECT generation_id FROM turn WHERE id = OLD.turn_id) AND tally IS NOT NULL;
END;

CREATE TRIGGER node_changed AFTER UPDATE ON node BEGIN
  UPDATE generation SET tally = NULL
  WHERE id IN (SELECT generation_id FROM turn WHERE id IN (OLD.turn_id, NEW.turn_id))
    AND tally IS NOT NULL;
END;
CREATE TRIGGER node_removed AFTER DELETE ON node BEGIN
  UPDATE generation SET tally = NULL
  WHERE id = (SELECT generation_id FROM turn WHERE id = OLD.turn_id) AND tally IS NOT NULL;
END;
