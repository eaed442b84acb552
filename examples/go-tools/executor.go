package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	bridle "bridle.dev/examples/go-tools/gen/bridle/v1"
)

// tool runs one call. It reports what it is doing, and stops when its context is done.
type tool func(ctx context.Context, arguments []byte, report func(string)) (string, error)

var tools = map[string]tool{"shout": shout, "countdown": countdown}

// executor offers a tool that answers at once and one that takes its time.
type executor struct {
	bridle.UnimplementedToolExecutorServer
}

func (*executor) ListExecutorTools(
	context.Context, *bridle.ListExecutorToolsRequest,
) (*bridle.ListExecutorToolsResponse, error) {
	return &bridle.ListExecutorToolsResponse{Tools: []*bridle.ExecutorTool{
		{
			Name:        "shout",
			Description: "Returns a text in capitals.",
			Parameters:  object("text", "string", "What to shout."),
			// Nothing happens outside: it may be called again, and several times at once.
			Idempotent: true, Parallel: true,
		},
		{
			Name:        "countdown",
			Description: "Counts down, one number each second.",
			Parameters:  object("from", "integer", "The first number."),
		},
	}}, nil
}

func (*executor) ExecuteTool(
	request *bridle.ExecuteToolRequest, stream grpc.ServerStreamingServer[bridle.ExecuteToolResponse],
) error {
	run, found := tools[request.Name]
	if !found {
		return status.Errorf(codes.NotFound, "there is no tool %q", request.Name)
	}
	// The context ends at the deadline, and when the run is cancelled.
	ctx := stream.Context()
	text, err := run(ctx, []byte(request.Arguments), func(progress string) {
		// If it cannot be sent the context is done too.
		_ = stream.Send(&bridle.ExecuteToolResponse{Response: &bridle.ExecuteToolResponse_Progress{Progress: progress}})
	})
	if ctx.Err() != nil {
		log.Printf("%s was stopped: %v", request.ToolCallId, context.Cause(ctx))
		return status.FromContextError(ctx.Err()).Err()
	}
	outcome := bridle.ToolReturn_OUTCOME_SUCCEEDED
	if err != nil {
		// The model reads it, and may do better.
		outcome, text = bridle.ToolReturn_OUTCOME_FAILED, err.Error()
	}
	part := &bridle.Part{Part: &bridle.Part_Text{Text: &bridle.Text{Text: text}}}
	result := &bridle.ToolReturn{ToolCallId: request.ToolCallId, Outcome: outcome, Content: []*bridle.Part{part}}
	return stream.Send(&bridle.ExecuteToolResponse{Response: &bridle.ExecuteToolResponse_Result{Result: result}})
}

func shout(_ context.Context, arguments []byte, _ func(string)) (string, error) {
	var given struct{ Text string }
	if err := json.Unmarshal(arguments, &given); err != nil {
		return "", err
	}
	if given.Text == "" {
		return "", fmt.Errorf("there is nothing to shout")
	}
	return strings.ToUpper(given.Text), nil
}

// object is the JSON schema of an object with one property.
func object(name, kind, description string) *structpb.Struct {
	schema, err := structpb.NewStruct(map[string]any{
		"type":       "object",
		"properties": map[string]any{name: map[string]any{"type": kind, "description": description}},
		"required":   []any{name},
	})
	if err != nil {
		panic(err)
	}
	return schema
}
