// How a model's rotary embeddings are stretched for longer contexts: read from the JSON that config.json and
// --rope-scaling share, and put in the place of what a model says.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "load/json_fields.h"
#include "load/model_config.h"

namespace tandem {

// The settings of one object: {"rope_type": "yarn", "factor": 4.0, ...}. An original_max_position_embeddings
// that may be absent and is becomes 0. Errors: kMalformedFile and kUnsupported, with the object's place.
Result<RopeScaling> ReadRopeScaling(const JsonFields& rope);

// YaRN's factor of q and k where nothing else is said: 0.1 ln(factor) + 1.
double DefaultYarnAttention(double factor);

// Where a file has YaRN scaling: what it stretches is the model's context if it does not say, and the context
// is what the scaling reaches, if that is more than the file says (some files name the one, some the other).
void CompleteRopeScaling(ModelConfig* config);

// A command line's scaling: such an object, or TYPE:FACTOR ("yarn:4"; "llama3:8" has the other
// numbers of Llama 3.1, but its context). Errors: kInvalidArgument, kUnsupported; param is "rope-scaling".
Result<RopeScaling> ParseRopeScaling(std::string_view text);

// Puts scaling in the place of the model's own; max_position becomes the original context times the factor.
// The original context is what scaling says, else what the model's scaling says, else the model's context.
// Errors: kInvalidArgument if none of them says it or the result is too long; param is "rope-scaling".
Status OverrideRopeScaling(const RopeScaling& scaling, ModelConfig* config);

// "yarn with factor 4 of 8192 tokens", for messages.
std::string DescribeRopeScaling(const RopeScaling& scaling);

}  // namespace tandem
