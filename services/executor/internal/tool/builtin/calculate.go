package builtin

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast/pkg/agent"
)

// Limits of an expression.
const (
	maxExpression = 1000 // bytes
	maxNesting    = 100
)

func calculate() agent.Tool {
	type input struct {
		Expression string `json:"expression" jsonschema:"for example (2 + 3) * 4"`
	}
	type output struct {
		Value float64 `json:"value"`
	}
	const description = "Calculates an arithmetic expression with + - * / % ^ and parentheses."
	return agent.NewTool("calculate", description, func(_ context.Context, _ *agent.Call, in input) (output, error) {
		value, err := evaluate(in.Expression)
		return output{value}, err
	}, agent.ReadOnly())
}

// evaluate returns the value of an expression:
//
//	sum     = product { ("+" | "-") product }
//	product = unary { ("*" | "/" | "%") unary }
//	unary   = ("+" | "-") unary | power
//	power   = atom [ "^" unary ]
//	atom    = number | "(" sum ")"
func evaluate(expression string) (float64, error) {
	if len(expression) > maxExpression {
		return 0, fmt.Errorf("the expression has %d bytes; at most %d are allowed", len(expression), maxExpression)
	}
	p := parser{text: expression}
	value, err := p.sum()
	if err == nil && p.peek() != 0 {
		err = p.unexpected()
	}
	switch {
	case err != nil:
		return 0, err
	case math.IsNaN(value) || math.IsInf(value, 0):
		return 0, fmt.Errorf("%q has no finite value", expression)
	}
	return value, nil
}

type parser struct {
	text  string
	at    int
	depth int
}

// peek returns the next byte other than a space, or 0 at the end.
func (p *parser) peek() byte {
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.at]) >= 0 {
		p.at++
	}
	if p.at == len(p.text) {
		return 0
	}
	return p.text[p.at]
}

// accept consumes the next byte if it is one of bytes.
func (p *parser) accept(bytes string) byte {
	b := p.peek()
	if b == 0 || strings.IndexByte(bytes, b) < 0 {
		return 0
	}
	p.at++
	return b
}

func (p *parser) unexpected() error {
	if p.peek() == 0 {
		return fmt.Errorf("the expression %q is incomplete", p.text)
	}
	return fmt.Errorf("%q is not expected at position %d of %q", p.text[p.at:p.at+1], p.at+1, p.text)
}

func (p *parser) sum() (float64, error) {
	value, err := p.product()
	for err == nil {
		operator := p.accept("+-")
		if operator == 0 {
			break
		}
		var next float64
		next, err = p.product()
		if operator == '-' {
			next = -next
		}
		value += next
	}
	return value, err
}

func (p *parser) product() (float64, error) {
	value, err := p.unary()
	for err == nil {
		operator := p.accept("*/%")
		if operator == 0 {
			break
		}
		var next float64
		if next, err = p.unary(); err != nil {
			break
		}
		switch {
		case operator == '*':
			value *= next
		case next == 0:
			return 0, fmt.Errorf("division by zero in %q", p.text)
		case operator == '/':
			value /= next
		default:
			value = math.Mod(value, next)
		}
	}
	return value, err
}

func (p *parser) unary() (float64, error) {
	if p.depth++; p.depth > maxNesting {
		return 0, fmt.Errorf("%q is nested too deeply", p.text)
	}
	defer func() { p.depth-- }()
	sign := p.accept("+-")
	if sign == 0 {
		return p.power()
	}
	value, err := p.unary()
	if sign == '-' {
		value = -value
	}
	return value, err
}

func (p *parser) power() (float64, error) {
	base, err := p.atom()
	if err != nil || p.accept("^") == 0 {
		return base, err
	}
	exponent, err := p.unary()
	return math.Pow(base, exponent), err
}

func (p *parser) atom() (float64, error) {
	if p.accept("(") != 0 {
		value, err := p.sum()
		if err == nil && p.accept(")") == 0 {
			err = p.unexpected()
		}
		return value, err
	}
	p.peek()
	begin := p.at
	for p.at < len(p.text) && strings.IndexByte("0123456789.", p.text[p.at]) >= 0 {
		p.at++
	}
	if begin == p.at {
		return 0, p.unexpected()
	}
	value, err := strconv.ParseFloat(p.text[begin:p.at], 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number", p.text[begin:p.at])
	}
	return value, nil
}
