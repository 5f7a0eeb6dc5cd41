package config

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strings"
)

// Setting is a variable with its value in an environment.
type Setting struct {
	Variable
	Value string // "" for none; without secrets
	Set   bool   // the value is of the environment, not the default
}

// Settings returns the variables of target, a struct or a pointer to one, with their values in environ. Secrets are
// masked: the whole value of a variable marked as secret, and passwords in URLs.
func Settings(target any, environ []string) []Setting {
	values := valuesOf(environ)
	var settings []Setting
	for _, v := range Variables(target) {
		value := values[v.Name]
		settings = append(settings, Setting{Variable: v, Value: masked(v, cmp.Or(value, v.Default)), Set: value != ""})
	}
	return settings
}

// mask stands in the place of a secret. It does not show the secret's length.
const mask = "******"

// passwordPair is the password in a list of pairs, as PostgreSQL accepts in place of a URL.
var passwordPair = regexp.MustCompile(`(?i)\bpassword\s*=\s*('(?:[^'\\]|\\.)*'|\S+)`)

func masked(v Variable, value string) string {
	switch {
	case value == "":
		return ""
	case v.Secret:
		return mask
	}
	parts := strings.Split(value, ",")
	for i, part := range parts {
		parts[i] = maskedPassword(part)
	}
	return passwordPair.ReplaceAllString(strings.Join(parts, ","), "password="+mask)
}

// maskedPassword masks the user's secret in a URL. A URL with a user that cannot be read is masked as a whole.
func maskedPassword(text string) string {
	before, rest, found := strings.Cut(text, "://")
	if !found || !strings.Contains(rest, "@") {
		return maskedQuery(text)
	}
	parsed, err := url.Parse(strings.TrimSpace(text))
	if err != nil {
		return before + "://" + mask
	}
	if _, secret := parsed.User.Password(); secret {
		user := url.User(parsed.User.Username()).String()
		parsed.User = nil
		text = strings.Replace(parsed.String(), "://", "://"+user+":"+mask+"@", 1)
	} else if parsed.User != nil { // a lone word may be a token, as in NATS URLs
		parsed.User = nil
		text = strings.Replace(parsed.String(), "://", "://"+mask+"@", 1)
	}
	return maskedQuery(text)
}

// secretParameter is a parameter of a URL with a secret.
var secretParameter = regexp.MustCompile(`(?i)([?&](?:ssl)?(?:password|token|secret)=)[^&#]*`)

func maskedQuery(text string) string { return secretParameter.ReplaceAllString(text, "${1}"+mask) }

// helpWidth is the longest line of Help.
const helpWidth = 100

// Help describes the variables of target for people: each with its default, and below it what it does.
func Help(w io.Writer, target any) error {
	for _, v := range Variables(target) {
		line := "  " + v.Name
		switch {
		case v.Required:
			line += "  (required)"
		case v.Default != "":
			line += "=" + v.Default
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
		for _, text := range wrap(v.Doc, helpWidth-len(helpIndent)) {
			if _, err := fmt.Fprintln(w, helpIndent+text); err != nil {
				return err
			}
		}
	}
	return nil
}

const helpIndent = "      "

// wrap breaks a text into lines of at most that many bytes, between words.
func wrap(text string, width int) []string {
	var lines []string
	var line string
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	if line != "" {
		lines = append(lines, line)
	}
	return lines
}
