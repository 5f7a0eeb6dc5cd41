package schema

import (
	"cmp"
	"encoding/json"
	"math/big"
	"strconv"
	"strings"
)

// maxExponent replaces larger exponents.
const maxExponent = 1 << 50

// maxDigits bounds the digits of a division.
const maxDigits = 2000

// decimal is digits × 10^exponent. digits has no leading or trailing zeros, and is empty for 0.
type decimal struct {
	negative bool
	digits   string
	exponent int64
}

// parseDecimal parses a JSON number.
func parseDecimal(n json.Number) decimal {
	text := string(n)
	var d decimal
	text, d.negative = strings.CutPrefix(text, "-")
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		d.exponent = parseExponent(text[i+1:])
		text = text[:i]
	}
	whole, fraction, _ := strings.Cut(text, ".")
	d.exponent -= int64(len(fraction))
	all := strings.TrimLeft(whole+fraction, "0")
	d.digits = strings.TrimRight(all, "0")
	d.exponent += int64(len(all) - len(d.digits))
	if d.digits == "" {
		return decimal{}
	}
	return d
}

func parseExponent(text string) int64 {
	e, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil && strings.HasPrefix(text, "-"):
		return -maxExponent
	case err != nil:
		return maxExponent
	}
	return min(max(e, -maxExponent), maxExponent)
}

// isInteger reports whether the number is an integer; 1.0 is one.
func (d decimal) isInteger() bool { return d.exponent >= 0 }

func (d decimal) key() string {
	sign := ""
	if d.negative {
		sign = "-"
	}
	return sign + d.digits + "e" + strconv.FormatInt(d.exponent, 10)
}

// compare is -1, 0 or 1 as d is below, at or above e.
func (d decimal) compare(e decimal) int {
	if s := cmp.Compare(d.sign(), e.sign()); s != 0 {
		return s
	}
	size := cmp.Compare(int64(len(d.digits))+d.exponent, int64(len(e.digits))+e.exponent)
	if size == 0 {
		size = cmp.Compare(d.digits, e.digits) // digits of the same magnitude compare as text
	}
	if d.negative {
		return -size
	}
	return size
}

func (d decimal) sign() int {
	switch {
	case d.digits == "":
		return 0
	case d.negative:
		return -1
	}
	return 1
}

// multipleOf reports whether d is a multiple of e. It returns true for numbers too long to divide.
func (d decimal) multipleOf(e decimal) bool {
	if d.digits == "" {
		return true
	}
	shift := d.exponent - e.exponent
	if shift > maxDigits || -shift > maxDigits || len(d.digits) > maxDigits || len(e.digits) > maxDigits {
		return true
	}
	dividend, divisor := d.integer(max(shift, 0)), e.integer(max(-shift, 0))
	return new(big.Int).Rem(dividend, divisor).Sign() == 0
}

// divisionDigits is the number of digits in the division of multipleOf.
func (d decimal) divisionDigits(e decimal) int {
	shift := d.exponent - e.exponent
	return min(len(d.digits)+len(e.digits), 2*maxDigits) + int(min(max(shift, -shift), maxDigits))
}

// integer returns digits × 10^zeros.
func (d decimal) integer(zeros int64) *big.Int {
	n, _ := new(big.Int).SetString(d.digits+strings.Repeat("0", int(zeros)), 10) // digits always parse
	return n
}
