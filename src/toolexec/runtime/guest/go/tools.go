// The guest for Go: compiled together with a program, it says hello on a socket, runs the program once the host asks for
// it, and reports what came of it. The host adds a file with the program, as the function toolexecProgram.

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

const toolexecMaxFrame = 16 << 20

// ToolError says why a tool call failed.
type ToolError struct {
	Message   string         `json:"error"`
	Code      string         `json:"code"`
	ToolID    string         `json:"toolId,omitempty"`
	Op        string         `json:"op,omitempty"`
	Backend   string         `json:"backend,omitempty"`
	Retryable bool           `json:"retryable"`
	Details   map[string]any `json:"details,omitempty"`
}

func (e *ToolError) Error() string { return e.Message }

// ToolResult is what a tool returned.
type ToolResult struct {
	Structured any
	Handle     map[string]any
}

// MarshalJSON gives the value alone, so that a program can return what a tool returned.
func (r *ToolResult) MarshalJSON() ([]byte, error) { return json.Marshal(r.Structured) }

// toolexecTools finds tools and calls them; safe to use from several goroutines.
type toolexecTools struct{ line *toolexecLine }

// Run calls a tool and gives its value.
func (t *toolexecTools) Run(id string, args any) (any, error) {
	result, err := t.RunTool(toolexecContext, id, args)
	if err != nil {
		return nil, err
	}
	return result.Structured, nil
}

// RunTool calls a tool; when ctx ends before it does, the call is cancelled.
func (t *toolexecTools) RunTool(ctx context.Context, id string, args any) (*ToolResult, error) {
	return t.structured(ctx, "run_tool", map[string]any{"id": id, "args": args})
}

// RunChain calls tools one after the other; each step has toolId, args and usePrevious.
func (t *toolexecTools) RunChain(ctx context.Context, steps []map[string]any) (*ToolResult, error) {
	return t.structured(ctx, "run_chain", map[string]any{"steps": steps})
}

// Search gives the best tools for a query.
func (t *toolexecTools) Search(query string, limit ...int) ([]map[string]any, error) {
	most := 10
	if len(limit) > 0 {
		most = limit[0]
	}
	return t.list("search_tools", map[string]any{"query": query, "limit": most}, "results")
}

// Describe says what there is to know about a tool.
func (t *toolexecTools) Describe(id string) (map[string]any, error) {
	return t.line.ask(toolexecContext, "describe_tool", map[string]any{"id": id, "level": "full"})
}

// Examples gives example arguments of a tool.
func (t *toolexecTools) Examples(id string) ([]map[string]any, error) {
	return t.list("list_tool_examples", map[string]any{"id": id, "max": 10}, "examples")
}

// ListNamespaces gives the namespaces of all tools.
func (t *toolexecTools) ListNamespaces() ([]string, error) {
	answer, err := t.line.ask(toolexecContext, "list_namespaces", map[string]any{})
	names := []string{}
	items, _ := answer["namespaces"].([]any)
	for _, item := range items {
		if name, ok := item.(string); ok {
			names = append(names, name)
		}
	}
	return names, err
}

// Println prints values as fmt.Println does.
func (t *toolexecTools) Println(values ...any) { fmt.Println(values...) }

func (t *toolexecTools) structured(ctx context.Context, kind string, payload any) (*ToolResult, error) {
	answer, err := t.line.ask(ctx, kind, payload)
	if err != nil {
		return nil, err
	}
	if handle, ok := answer["handle"].(map[string]any); ok {
		return &ToolResult{Structured: map[string]any{"$handle": handle["id"]}, Handle: handle}, nil
	}
	return &ToolResult{Structured: answer["structured"]}, nil
}

func (t *toolexecTools) list(kind string, payload any, key string) ([]map[string]any, error) {
	answer, err := t.line.ask(toolexecContext, kind, payload)
	found := []map[string]any{}
	items, _ := answer[key].([]any)
	for _, item := range items {
		if record, ok := item.(map[string]any); ok {
			found = append(found, record)
		}
	}
	return found, err
}

type toolexecMessage struct {
	Type    string          `json:"type"`
	ID      string          `json:"id"`
	Payload json.RawMessage `json:"payload"`
}

// toolexecLine is the way to the host.
type toolexecLine struct {
	file    *os.File
	write   sync.Mutex
	lock    sync.Mutex
	last    int
	pending map[string]chan toolexecMessage
	inbox   chan toolexecMessage
}

func (l *toolexecLine) send(kind, id string, payload any) error {
	text, err := json.Marshal(payload)
	if err != nil {
		return err
	}
	body, err := json.Marshal(toolexecMessage{Type: kind, ID: id, Payload: text})
	if err != nil {
		return err
	}
	if len(body) > toolexecMaxFrame-64 {
		return fmt.Errorf("a message of %d bytes is too large; at most 16 MiB fit", len(body))
	}
	frame := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	l.write.Lock()
	defer l.write.Unlock()
	_, err = l.file.Write(append(frame, body...))
	return err
}

func (l *toolexecLine) ask(ctx context.Context, kind string, payload any) (map[string]any, error) {
	answers := make(chan toolexecMessage, 1)
	l.lock.Lock()
	l.last++
	id := strconv.Itoa(l.last)
	l.pending[id] = answers
	l.lock.Unlock()
	if err := l.send(kind, id, payload); err != nil {
		return nil, &ToolError{Message: err.Error(), Code: "validation_input"}
	}
	select {
	case answer := <-answers:
		if answer.Type == "error" {
			failure := &ToolError{Message: "unknown error", Code: "internal"}
			_ = json.Unmarshal(answer.Payload, failure)
			return nil, failure
		}
		return toolexecObject(answer.Payload), nil
	case <-ctx.Done():
		l.lock.Lock()
		delete(l.pending, id)
		l.lock.Unlock()
		_ = l.send("cancel", id, map[string]any{})
		return nil, ctx.Err()
	}
}

func (l *toolexecLine) listen() {
	for {
		var head [4]byte
		if _, err := io.ReadFull(l.file, head[:]); err != nil {
			os.Exit(0)
		}
		body := make([]byte, binary.BigEndian.Uint32(head[:]))
		if _, err := io.ReadFull(l.file, body); err != nil {
			os.Exit(0)
		}
		var messages []toolexecMessage
		if json.Unmarshal(body, &messages) != nil {
			continue
		}
		for _, message := range messages {
			l.deliver(message)
		}
	}
}

func (l *toolexecLine) deliver(message toolexecMessage) {
	if message.Type == "execute" || message.Type == "bye" {
		l.inbox <- message
		return
	}
	l.lock.Lock()
	answers := l.pending[message.ID]
	delete(l.pending, message.ID)
	l.lock.Unlock()
	if answers != nil {
		answers <- message
	}
}

// toolexecObject decodes an object; an integer too large for a float64 stays a json.Number.
func toolexecObject(text []byte) map[string]any {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var found map[string]any
	if decoder.Decode(&found) != nil {
		return map[string]any{}
	}
	plain, _ := toolexecPlain(found).(map[string]any)
	return plain
}

func toolexecPlain(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, item := range value {
			value[key] = toolexecPlain(item)
		}
	case []any:
		for index, item := range value {
			value[index] = toolexecPlain(item)
		}
	case json.Number:
		number, err := value.Float64()
		whole, isWhole := value.Int64()
		if err != nil || (!strings.ContainsAny(string(value), ".eE") && (isWhole != nil || int64(number) != whole)) {
			return value
		}
		return number
	}
	return value
}

var toolexecContext, toolexecCancel = context.WithCancel(context.Background())
var toolexecTheTools *toolexecTools

func main() {
	number, _ := strconv.Atoi(os.Args[1])
	syscall.CloseOnExec(number) // who is started by the program must not keep the line open
	line := &toolexecLine{
		file:    os.NewFile(uintptr(number), "host"),
		pending: map[string]chan toolexecMessage{},
		inbox:   make(chan toolexecMessage, 4),
	}
	toolexecTheTools = &toolexecTools{line}
	go line.listen()
	hello := map[string]any{"protocol": "toolexec-guest", "version": 1, "capabilities": []string{"go"}}
	_ = line.send("hello", "0", hello)
	for message := range line.inbox {
		if message.Type == "bye" {
			return
		}
		if err := line.send("result", message.ID, toolexecRun(message.Payload)); err != nil {
			failure := map[string]any{"kind": "ValueError", "message": "the value cannot be sent: " + err.Error()}
			_ = line.send("result", message.ID, map[string]any{"error": failure})
		}
	}
}

func toolexecRun(text []byte) (result map[string]any) {
	var payload struct {
		Env   map[string]string `json:"env"`
		Args  []string          `json:"args"`
		Stdin string            `json:"stdin"`
	}
	_ = json.Unmarshal(text, &payload)
	for name, value := range payload.Env {
		_ = os.Setenv(name, value)
	}
	os.Args = append([]string{"code"}, payload.Args...)
	toolexecStdin(payload.Stdin)
	defer func() {
		if cause := recover(); cause != nil {
			result = toolexecFailure("panic", fmt.Sprintf("panic: %v", cause), string(debug.Stack()), cause)
		}
		toolexecCancel()
	}()
	value := toolexecProgram()
	if err, failed := value.(error); failed {
		return toolexecFailure("error", err.Error(), "", err)
	}
	return map[string]any{"value": value}
}

func toolexecFailure(kind, message, stack string, cause any) map[string]any {
	found := map[string]any{"kind": kind, "message": message}
	places := regexp.MustCompile(`code\.go:(\d+)`).FindStringSubmatch(stack)
	if places != nil {
		found["line"], _ = strconv.Atoi(places[1])
		found["traceback"] = stack
	}
	var failure *ToolError
	if err, isError := cause.(error); isError && errors.As(err, &failure) {
		found["tool_error"] = failure
	}
	return map[string]any{"error": found}
}

func toolexecStdin(text string) {
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(data) == 0 {
		return
	}
	if reading, writing, err := os.Pipe(); err == nil {
		os.Stdin = reading
		go func() {
			_, _ = writing.Write(data)
			_ = writing.Close()
		}()
	}
}
