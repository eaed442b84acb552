// Streams a run and cancels it at Ctrl-C: go run . [address] [text]
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	bridle "bridle.dev/examples/go/gen/bridle/v1"
)

func main() {
	address, text := argument(1, "127.0.0.1:50051"), argument(2, "count to 100")
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	run, err := say(context.Background(), connection, text)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("\n%s\n", strings.TrimPrefix(run.State.String(), "STATE_"))
}

// say starts a run of a new agent and follows it to its end.
func say(ctx context.Context, connection *grpc.ClientConn, text string) (*bridle.Run, error) {
	agents, runs := bridle.NewAgentServiceClient(connection), bridle.NewRunServiceClient(connection)
	agent, err := agents.CreateAgent(ctx, &bridle.CreateAgentRequest{Agent: &bridle.Agent{Model: "demo/slow"}})
	if err != nil {
		return nil, err
	}
	part := &bridle.Part{Part: &bridle.Part_Text{Text: &bridle.Text{Text: text}}}
	created, err := runs.CreateRun(ctx, &bridle.CreateRunRequest{
		AgentId: agent.Id, Messages: []*bridle.InputMessage{{Parts: []*bridle.Part{part}}},
	})
	if err != nil {
		return nil, err
	}
	go cancelAtInterrupt(ctx, runs, created.Run.Id)
	return follow(ctx, runs, created.Run.Id, created.AfterSeq, show)
}

func cancelAtInterrupt(ctx context.Context, runs bridle.RunServiceClient, runID string) {
	pressed := make(chan os.Signal, 1)
	signal.Notify(pressed, os.Interrupt)
	<-pressed
	signal.Stop(pressed) // a second Ctrl-C ends the program
	// The answer is not needed: the stream says when the run has stopped.
	if _, err := runs.CancelRun(ctx, &bridle.CancelRunRequest{RunId: runID, Reason: "Ctrl-C"}); err != nil {
		log.Print(err)
	}
}

func show(event *bridle.RunEvent) {
	switch {
	case event.GetTextDelta() != nil:
		fmt.Print(event.GetTextDelta().Text)
	case event.GetRestarted() != nil:
		fmt.Println("\n[the server was restarted: the model begins its turn again]")
	}
}

func argument(index int, otherwise string) string {
	if len(os.Args) > index {
		return os.Args[index]
	}
	return otherwise
}
