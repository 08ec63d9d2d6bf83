// One function per data set; registry.cpp lists them.
#pragma once
#include "datasets/dataset.h"

namespace evalrun::datasets {

DatasetEntry mt_bench();
DatasetEntry gsm8k();
DatasetEntry gsm_100();
DatasetEntry humaneval();
DatasetEntry humaneval_x();
DatasetEntry mbpp();
DatasetEntry mbpp_100();
DatasetEntry xsum();
DatasetEntry spec_bench();
DatasetEntry cip();
DatasetEntry cip_standin();
DatasetEntry dolly();

// Our own prompts, compiled in: "samples/chat" and so on, then "samples", which is all of them.
std::vector<DatasetEntry> samples();

// The user's own file; see jsonl.cpp for the schema.
LoadedDataset load_jsonl(const std::string& path);

}  // namespace evalrun::datasets
