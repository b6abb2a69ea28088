#include "jinja/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>

#include "jinja/error.h"
#include "jinja/expression_parser.h"

namespace tandem::jinja {
namespace {

using StatementPtr = std::unique_ptr<Statement>;

class TemplateParser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Body Parse() {
    Body body = ParseBody({});
    if (!unknown_names_.empty()) throw TemplateError(unknown_names_[0].message, unknown_names_[0].line);
    return body;
  }

 private:
  using EndNames = std::initializer_list<std::string_view>;

  StatementPtr NewStatement(StatementKind kind) const {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = Current().line;
    return statement;
  }

  bool AtAnyName(EndNames names) const {
    return std::any_of(names.begin(), names.end(),
                       [this](std::string_view name) { return Current().IsName(name); });
  }

  // Statements up to a block that starts with one of end_names, whose name is then the current token.
  Body ParseBody(EndNames end_names) {
    const NestingGuard guard(*this);
    Body body;
    while (Current().type != TokenType::kEnd) {
      if (Current().type == TokenType::kData) {
        StatementPtr text = NewStatement(StatementKind::kText);
        text->text = Current().text;
        Advance();
        body.push_back(std::move(text));
      } else if (Current().type == TokenType::kVariableBegin) {
        StatementPtr output = NewStatement(StatementKind::kOutput);
        Advance();
        output->expressions.push_back(ParseTuple({}));
        if (Current().type != TokenType::kVariableEnd) {
          Fail("expected end of print statement, got " + DescribeCurrent());
        }
        Advance();
        body.push_back(std::move(output));
      } else {
        Advance();  // kBlockBegin
        if (AtAnyName(end_names)) return body;
        body.push_back(ParseStatement());
        ExpectBlockEnd();
      }
    }
    if (end_names.size() != 0) {
      Fail(fmt::format("unexpected end of template, '{}' is missing", *(end_names.end() - 1)));
    }
    return body;
  }

  void ExpectBlockEnd() {
    if (Current().type != TokenType::kBlockEnd) {
      Fail("expected end of statement block, got " + DescribeCurrent());
    }
    Advance();
  }

  // The body behind a block's head. The last of end_names is the statement's own end.
  Body ParseBlockBody(EndNames end_names) {
    SkipOperator(":");
    ExpectBlockEnd();
    return ParseBody(end_names);
  }

  // As ParseBlockBody, for the body of a statement that ends with end_name.
  Body ParseLastBody(std::string_view end_name) {
    Body body = ParseBlockBody({end_name});
    Advance();
    return body;
  }

  StatementPtr ParseStatement() {
    if (Current().type != TokenType::kName) Fail("tag name expected, got " + DescribeCurrent());
    StatementPtr statement = NewStatement(StatementKind::kText);
    const std::string name = TakeName();
    if (name == "if") {
      ParseIf(*statement);
    } else if (name == "for") {
      ParseFor(*statement);
    } else if (name == "set") {
      ParseSet(*statement);
    } else if (name == "macro") {
      ParseMacro(*statement);
    } else if (name == "call") {
      ParseCallBlock(*statement);
    } else if (name == "filter") {
      statement->kind = StatementKind::kFilterBlock;
      statement->filter = ParseFilters(nullptr, true);
      statement->body = ParseLastBody("endfilter");
    } else if (name == "with") {
      ParseWith(*statement);
    } else if (name == "print") {
      ParsePrint(*statement);
    } else if (name == "generation") {
      // Marks what the assistant said, for training; here it is a scope.
      statement->kind = StatementKind::kScope;
      const int loops = std::exchange(open_loops_, 0);
      statement->body = ParseLastBody("endgeneration");
      open_loops_ = loops;
    } else if (name == "break" || name == "continue") {
      if (open_loops_ == 0) throw TemplateError(fmt::format("'{}' outside of a loop", name), statement->line);
      statement->kind = name == "break" ? StatementKind::kBreak : StatementKind::kContinue;
    } else {
      throw TemplateError(fmt::format("Encountered unknown tag '{}'.", name), statement->line);
    }
    return statement;
  }

  void ParseIf(Statement& statement) {
    statement.kind = StatementKind::kIf;
    const size_t num_unknown = unknown_names_.size();
    while (true) {
      Branch branch;
      branch.condition = ParseTuple({.with_conditional = false});
      branch.body = ParseBlockBody({"elif", "else", "endif"});
      statement.branches.push_back(std::move(branch));
      if (SkipName("elif")) continue;
      if (SkipName("else")) {
        Branch otherwise;
        otherwise.body = ParseLastBody("endif");
        statement.branches.push_back(std::move(otherwise));
      } else {
        ExpectName("endif");
      }
      break;
    }
    unknown_names_.erase(unknown_names_.begin() + static_cast<ptrdiff_t>(num_unknown), unknown_names_.end());
  }

  static void RejectLoopTarget(const Expr& target) {
    if (target.kind == ExprKind::kName && target.name == "loop") {
      throw TemplateError("Can't assign to special loop variable in for-loop", target.line);
    }
    for (const ExprPtr& child : target.children) RejectLoopTarget(*child);
  }

  void ParseFor(Statement& statement) {
    statement.kind = StatementKind::kFor;
    statement.targets.push_back(ParseTarget({.targets_only = true, .end_name = "in"}));
    RejectLoopTarget(*statement.targets[0]);
    ExpectName("in");
    statement.expressions.push_back(ParseTuple({.with_conditional = false, .end_name = "recursive"}));
    if (SkipName("if")) statement.condition = ParseExpression();
    statement.recursive = SkipName("recursive");
    ++open_loops_;
    statement.body = ParseBlockBody({"else", "endfor"});
    --open_loops_;
    if (SkipName("else")) {
      statement.else_body = ParseLastBody("endfor");
    } else {
      ExpectName("endfor");
    }
  }

  void ParseSet(Statement& statement) {
    statement.kind = StatementKind::kSet;
    statement.targets.push_back(ParseTarget({.targets_only = true, .with_namespace = true}));
    if (SkipOperator("=")) {
      statement.expressions.push_back(ParseTuple({}));
      return;
    }
    statement.kind = StatementKind::kSetBlock;
    statement.filter = ParseFilters(nullptr, false);
    statement.body = ParseLastBody("endset");
  }

  void ParseSignature(Signature& signature) {
    ExpectOperator("(");
    while (!Current().IsOperator(")")) {
      if (!signature.parameters.empty()) ExpectOperator(",");
      signature.parameters.push_back(ParseTargetName());
      const auto& names = signature.parameters;
      if (std::find(names.begin(), names.end() - 1, names.back()) != names.end() - 1) {
        Fail("duplicate parameter name");
      }
      if (SkipOperator("=")) {
        signature.defaults.push_back(ParseExpression());
      } else if (!signature.defaults.empty()) {
        Fail("non-default argument follows default argument");
      }
    }
    ExpectOperator(")");
  }

  Body ParseMacroBody(Signature& signature, std::string_view end_name) {
    open_macros_.push_back(&signature);
    const int loops = std::exchange(open_loops_, 0);
    Body body = ParseLastBody(end_name);
    open_loops_ = loops;
    open_macros_.pop_back();
    return body;
  }

  void ParseMacro(Statement& statement) {
    statement.kind = StatementKind::kMacro;
    statement.signature.name = ParseTargetName();
    ParseSignature(statement.signature);
    statement.body = ParseMacroBody(statement.signature, "endmacro");
  }

  void ParseCallBlock(Statement& statement) {
    statement.kind = StatementKind::kCallBlock;
    statement.signature.name = "caller";
    if (Current().IsOperator("(")) ParseSignature(statement.signature);
    statement.expressions.push_back(ParseExpression());
    if (statement.expressions[0]->kind != ExprKind::kCall) Fail("expected call");
    statement.body = ParseMacroBody(statement.signature, "endcall");
  }

  void ParseWith(Statement& statement) {
    statement.kind = StatementKind::kWith;
    while (Current().type != TokenType::kBlockEnd) {
      if (!statement.targets.empty()) ExpectOperator(",");
      statement.targets.push_back(ParseTarget({.targets_only = true}));
      ExpectOperator("=");
      statement.expressions.push_back(ParseExpression());
    }
    statement.body = ParseLastBody("endwith");
  }

  void ParsePrint(Statement& statement) {
    statement.kind = StatementKind::kOutput;
    while (Current().type != TokenType::kBlockEnd) {
      if (!statement.expressions.empty()) ExpectOperator(",");
      statement.expressions.push_back(ParseExpression());
    }
  }

  int open_loops_ = 0;
};

}  // namespace

Body ParseTemplate(std::string_view source) {
  return TemplateParser(Tokenize(source)).Parse();
}

}  // namespace tandem::jinja
