// Package agents reads agents from YAML files. docs/agents-yaml.md describes their grammar, and Schema states it.
//
// A file is read in two steps. First each section (a provider, a tool, an MCP server, an agent, an entry of its tools) is
// checked by its definition in Schema and decoded into a struct. A value that does not fit is a mistake at its line, and the
// struct lacks it. Then the rules that no schema can state are checked: names that refer to each other, addresses,
// secrets, fields that contradict each other.
//
// # Descriptions of endpoints
//
// An endpoint is an application that describes its agents in the grammar of a file, as JSON (docs/endpoint.md). A description
// is one more document of the set. It has a few more fields (description.json), for the functions that the application has,
// and package endpoint makes these functions. A description uses the models of the executor, and its own and the built-in tools. It
// can neither read files nor name environment variables, providers or MCP servers. A mistake in it names the place in the
// application's code, if the description says where that is.
//
// # Stored agents
//
// A tenant may store an agent by API (docs/agents-api.md). Its definition is data like a description, in YAML or JSON, and may
// have HTTP tools, MCP servers at a URL, and sub-agents. It uses the providers of the executor's files. ParseStored makes the
// agent, and the text that is stored.
//
// # Security
//
// Three lists outside of the files (Known) restrict them: the commands of MCP servers, the hosts of
// HTTP tools, MCP servers and models, and the environment variables with secrets. A baseURL on this
// machine or at the provider's own host needs no list.
//
// No list restricts reading: file and include can read every file that the process can read, and its
// text can get into prompts. Load only files from people you trust, or in a process that can read
// nothing else.
//
// # Mistakes
//
// Load reports all mistakes of all files together, each with file, line and column. A mistake belongs to a part: a file, a
// provider, an MCP server, a tool or an agent. The set has everything without a mistake. A tool with a mistake is left
// out of its agent, so that no tool is served with half of its settings, for example without its approval.
package agents
