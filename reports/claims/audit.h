// Do published numbers agree with each other? The rules are identities and bounds that hold for any
// honest measurement (docs/claims.md states each with its tolerance). They know metrics and
// methods, never a paper, and do not read the notes.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "reports/claims/claims.h"
#include "reports/claims/finding.h"
#include "reports/document/document.h"

namespace evalrun::reports {

struct AuditRule {
  const char* name;
  const char* summary;
};
// In the order in which they run.
const std::vector<AuditRule>& audit_rules();

struct PaperAudit {
  std::string paper;
  int64_t rows = 0, values = 0;  // values: rows that state one
  int64_t checked = 0;           // rows that some rule compared with something
  int64_t flagged = 0;
  std::map<std::string, int64_t> comparisons;  // by rule
};

struct Audit {
  std::string file;
  std::vector<PaperAudit> papers;
  std::vector<Finding> findings;  // by rule, then in the order of the file
};

Audit audit_claims(const Claims& claims);

Document document(const Audit& audit);  // CSV has one line per flagged row
std::string to_json(const Audit& audit);

}  // namespace evalrun::reports
