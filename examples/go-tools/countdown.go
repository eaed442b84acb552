package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// countdown takes its time, and stops when its context is done: at its deadline, or because the run was cancelled.
func countdown(ctx context.Context, arguments []byte, report func(string)) (string, error) {
	given := struct{ From int }{From: 10}
	if err := json.Unmarshal(arguments, &given); err != nil {
		return "", err
	}
	for number := given.From; number > 0; number-- {
		report(fmt.Sprintf("%d …", number))
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(time.Second):
		}
	}
	return "lift-off", nil
}
