// The statements of a store up to commit(), or none of them. For what is made of
// ResultStore::execute(); the store's own functions have transactions of their own and cannot be
// part of it. Internal to results/.
#pragma once
#include <exception>

#include "results/store.h"

namespace evalrun::results {

class StoreTransaction {
 public:
  explicit StoreTransaction(ResultStore& store) : store_(store) {
    store_.execute("BEGIN IMMEDIATE");
  }
  ~StoreTransaction() {
    if (committed_) return;
    try {
      store_.execute("ROLLBACK");
    } catch (const std::exception&) {  // a full disk, among others, has rolled it back already
    }
  }
  StoreTransaction(const StoreTransaction&) = delete;
  StoreTransaction& operator=(const StoreTransaction&) = delete;
  void commit() {
    store_.execute("COMMIT");
    committed_ = true;
  }

 private:
  ResultStore& store_;
  bool committed_ = false;
};

}  // namespace evalrun::results
