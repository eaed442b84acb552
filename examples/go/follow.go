package main

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	bridle "bridle.dev/examples/go/gen/bridle/v1"
)

// follow shows a run's events after a cursor until the run stops, through lost connections.
func follow(
	ctx context.Context, runs bridle.RunServiceClient, runID string, afterSeq int64, show func(*bridle.RunEvent),
) (*bridle.Run, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the stream: gRPC keeps one that nobody reads to its end
	for {
		stream, err := runs.StreamRun(ctx, &bridle.StreamRunRequest{RunId: runID, AfterSeq: afterSeq})
		for err == nil {
			var response *bridle.StreamRunResponse
			response, err = stream.Recv()
			event := response.GetEvent()
			if event == nil { // a heartbeat, or an error
				continue
			}
			afterSeq = event.Seq
			if stopped := event.GetRunStopped(); stopped != nil {
				return stopped.Run, nil
			}
			show(event)
		}
		if status.Code(err) != codes.Unavailable {
			return nil, err
		}
		time.Sleep(500 * time.Millisecond)
	}
}
