// Another file as a database of a store's connection. Attaching and detaching cannot be part of a
// transaction.
#pragma once
#include <exception>
#include <string>
#include <utility>

#include "results/store.h"

namespace evalrun::results {

class AttachedStore {
 public:
  // Under `name` in statements of `store`, until this ends.
  AttachedStore(ResultStore& store, const std::string& path, std::string name)
      : store_(store), name_(std::move(name)) {
    store_.execute("ATTACH DATABASE ? AS " + name_, {path});
  }
  ~AttachedStore() {
    try {
      store_.execute("DETACH DATABASE " + name_);
    } catch (const std::exception&) {  // it ends with the connection
    }
  }
  AttachedStore(const AttachedStore&) = delete;
  AttachedStore& operator=(const AttachedStore&) = delete;

 private:
  ResultStore& store_;
  std::string name_;
};

}  // namespace evalrun::results
