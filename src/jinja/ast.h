// The syntax tree of a template. Immutable once parsed; shared by all renderings.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "jinja/operators.h"
#include "jinja/value.h"

namespace tandem::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

enum class ExprKind : uint8_t {
  kLiteral,       // literal
  kName,          // name
  kNamespaceRef,  // name.attribute, as an assignment's target
  kList,          // children
  kTuple,         // children
  kDict,          // children: key, value, key, value, ...
  kNegate,        // children[0]
  kPlus,          // children[0]
  kNot,           // children[0]
  kAnd,           // children[0..1]
  kOr,            // children[0..1]
  kBinary,        // op, children[0..1]
  kCompare,       // children[0] compares[0] children[1] compares[1] ...
  kConcat,        // children
  kConditional,   // children: condition, then, else (may be null)
  kAttribute,     // children[0].name
  kItem,          // children[0][children[1]]
  kSlice,         // children[0][children[1]:children[2]:children[3]], each bound may be null
  kCall,          // children[0](arguments)
  kFilter,        // children[0] | name(arguments); children[0] is null in a filter block
  kTest,          // children[0] is name(arguments)
};

enum class CompareOp : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr more_positional;  // *expression
  ExprPtr more_named;       // **expression
};

struct Expr {
  ExprKind kind = ExprKind::kLiteral;
  int line = 0;
  int depth = 1;  // of the tree below
  BinaryOp op = BinaryOp::kAdd;
  Value literal;
  std::string name;
  std::string attribute;
  std::vector<CompareOp> compares;
  std::vector<ExprPtr> children;
  CallArguments arguments;
};

struct Statement;
using Body = std::vector<std::unique_ptr<Statement>>;

enum class StatementKind : uint8_t {
  kText,         // text
  kOutput,       // expressions
  kIf,           // branches; the else branch has a null condition
  kFor,          // target in expressions[0] [if condition]; body, else_body
  kSet,          // target = expressions[0]
  kSetBlock,     // target = body [| filter]
  kMacro,        // signature, body
  kCallBlock,    // signature (of the caller), expressions[0] is the call, body
  kFilterBlock,  // filter, body
  kWith,         // targets, expressions, body
  kScope,        // body, in a scope of its own
  kBreak,
  kContinue,
};

struct Branch {
  ExprPtr condition;
  Body body;
};

struct Signature {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  bool takes_varargs = false;     // the body mentions varargs, kwargs, caller
  bool takes_kwargs = false;
  bool takes_caller = false;
};

struct Statement {
  StatementKind kind = StatementKind::kText;
  int line = 0;
  std::string text;
  std::vector<ExprPtr> targets;
  std::vector<ExprPtr> expressions;
  ExprPtr condition;
  ExprPtr filter;
  std::vector<Branch> branches;
  Signature signature;
  bool recursive = false;  // of a for loop: its body may call loop(items)
  Body body;
  Body else_body;
};

}  // namespace tandem::jinja
