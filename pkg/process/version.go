package process

import (
	"runtime/debug"
	"strings"
)

// shortCommit is how many characters of a commit Version shows.
const shortCommit = 12

// Version returns the version of the program: the module's version, the commit and the Go release, as far as the build
// recorded them.
func Version() string {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	return describe(build)
}

func describe(build *debug.BuildInfo) string {
	settings := make(map[string]string, len(build.Settings))
	for _, s := range build.Settings {
		settings[s.Key] = s.Value
	}
	version := build.Main.Version
	if version == "" {
		version = "(devel)"
	}
	parts := []string{version}
	if commit := settings["vcs.revision"]; commit != "" {
		commit = commit[:min(len(commit), shortCommit)]
		if settings["vcs.modified"] == "true" {
			commit += ", modified"
		}
		parts = append(parts, "commit "+commit)
	}
	return strings.Join(append(parts, build.GoVersion), ", ")
}
